"""The latest materialization of every partition of an asset, in a few queries for all of them.

Dagster finds the ids of these events for all partitions at once, but our tags only in the events
themselves, which have plots and images. So what was read of an event is stored in a file beside
Dagster's history, and the next call reads new events only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import dagster as dg

from assets.core.node import DATA_VERSION_TAG, FINGERPRINT
from schemas import StorageError
from warehouse import Home
from warehouse.sqlite_file import SqliteFile

_EVENTS_A_QUERY = 500
_CREATE = (
    "CREATE TABLE materializations (asset TEXT, partition TEXT, event INTEGER, run_id TEXT, "
    "fingerprint TEXT, data_version TEXT, PRIMARY KEY (asset, partition)) WITHOUT ROWID",
)
_SELECT = (
    "SELECT partition, event, run_id, fingerprint, data_version FROM materializations "
    "WHERE asset = ?"
)
_INSERT = "INSERT OR REPLACE INTO materializations VALUES (?, ?, ?, ?, ?, ?)"


class Materialization(NamedTuple):
    """The event of a partition, its run, and its tags (empty: it has none)."""

    event: int
    run_id: str
    fingerprint: str
    data_version: str


def latest_materializations(
    home: Home, instance: dg.DagsterInstance, asset: str
) -> dict[str, Materialization]:
    """Partition -> its latest materialization, of all partitions that have one."""
    events = instance.get_latest_storage_id_by_partition(
        dg.AssetKey(asset), dg.DagsterEventType.ASSET_MATERIALIZATION
    )
    runs = _runs_of_events(instance, asset)
    newest = {name: (event, runs[event]) for name, event in events.items() if event in runs}
    file = SqliteFile(home.dagster / "materializations.sqlite", _CREATE, durable=False)
    known = _load(file, asset)
    found = {
        name: known[name] for name in newest if name in known and known[name][:2] == newest[name]
    }
    missing = [event for name, (event, _) in newest.items() if name not in found]
    new = dict(_read_events(instance, asset, missing))
    _store(file, asset, new)
    return found | new


def succeeded_runs(instance: dg.DagsterInstance) -> set[str]:
    """Ids of all runs that succeeded."""
    filters = dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS])
    return set(instance.get_run_ids(filters))


def _runs_of_events(instance: dg.DagsterInstance, asset: str) -> dict[int, str]:
    """Event -> run, of all materializations of an asset, without their contents.

    Numbers of deleted events are given to later ones in SQLite, and another database has its own:
    number and run together are an event's identity. Dagster has no call for this.
    """
    import sqlalchemy as db  # with dagster's storage it takes a second to import
    from dagster._core.storage.event_log import SqlEventLogStorage, SqlEventLogStorageTable

    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    columns = SqlEventLogStorageTable.c
    query = db.select(columns.id, columns.run_id).where(
        columns.asset_key == dg.AssetKey(asset).to_string(),
        columns.dagster_event_type == dg.DagsterEventType.ASSET_MATERIALIZATION.value,
    )
    with storage.index_connection() as connection:
        return {row.id: row.run_id for row in connection.execute(query)}


def _read_events(
    instance: dg.DagsterInstance, asset: str, events: Sequence[int]
) -> Iterator[tuple[str, Materialization]]:
    for start in range(0, len(events), _EVENTS_A_QUERY):
        some = events[start : start + _EVENTS_A_QUERY]
        of_these = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), storage_ids=some)
        for record in instance.fetch_materializations(of_these, limit=len(some)).records:
            if record.partition_key and record.asset_materialization:
                tags = record.asset_materialization.tags or {}
                yield (
                    record.partition_key,
                    Materialization(
                        record.storage_id,
                        record.run_id,
                        tags.get(FINGERPRINT, ""),
                        tags.get(DATA_VERSION_TAG, ""),
                    ),
                )


def _load(file: SqliteFile, asset: str) -> dict[str, Materialization]:
    try:
        with file.transaction() as connection:
            rows = connection.execute(_SELECT, (asset,)).fetchall()
    except StorageError:
        file.remove()
        return {}
    return {partition: Materialization(*row) for partition, *row in rows}


def _store(file: SqliteFile, asset: str, new: Mapping[str, Materialization]) -> None:
    if not new:
        return
    try:
        with file.transaction() as connection:
            connection.executemany(_INSERT, [(asset, name, *row) for name, row in new.items()])
    except StorageError:
        file.remove()
