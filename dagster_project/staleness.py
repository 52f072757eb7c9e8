"""Whether an asset is as `interleave run` would make it: the same inputs, settings and code, and
what was stored is still there."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import dagster as dg

from assets.core.foundry import FoundryResource
from assets.core.node import CODE_VERSION_TAG, DATA_VERSION_TAG, FINGERPRINT, Node, lineage
from schemas import StorageError
from warehouse import Home
from warehouse.sqlite_file import SqliteFile

from .instance import PARTITION_TAG, UNFINISHED

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
_CHANGED = "What is stored is not what was materialized here: it was lost, damaged or written since"


class Materialization(NamedTuple):
    """The event of a partition, its run, and its tags (empty: it has none)."""

    event: int
    run_id: str
    fingerprint: str
    data_version: str


def is_up_to_date(
    node: Node, foundry: FoundryResource, instance: dg.DagsterInstance, partition: str | None = None
) -> bool:
    """Whether the run that last made a node succeeded, its fingerprint (code, settings, inputs) is
    unchanged, and what it wrote is still there."""
    latest = _latest_event(instance, node, partition)
    if latest is None or latest.fingerprint != node.fingerprint(foundry, instance, partition):
        return False
    if latest.data_version != node.data_version(foundry, partition):
        return False
    run = instance.get_run_by_id(latest.run_id)
    return run is not None and run.status == dg.DagsterRunStatus.SUCCESS


def up_to_date_partitions(
    node: Node, foundry: FoundryResource, instance: dg.DagsterInstance, partitions: Sequence[str]
) -> set[str]:
    """Those of the partitions of which `is_up_to_date` is true, in a few queries for all."""
    succeeded = _succeeded_runs(instance)
    latest = _latest_events(foundry.home, instance, node, succeeded)
    made = [name for name in partitions if name in latest]
    fingerprints = node.fingerprints(foundry, instance, made)
    versions = node.data_versions(foundry, made)
    return {
        name
        for name in made
        if latest[name].fingerprint == fingerprints[name]
        and latest[name].data_version == versions[name]
        and latest[name].run_id in succeeded
    }


def report_changes(foundry: FoundryResource, instance: dg.DagsterInstance) -> list[str]:
    """Tell Dagster which partitions are not stored as it knows them; returns their labels.

    Each gets a materialization of no run, of what is stored now and of no code version. So the UI
    marks it as unsynced, and what was made from it; and it has passed no checks, so that nothing
    is made from it. What a run is about to record is left out, and what not only runs write, such
    as reviews and checkpoints.
    """
    succeeded = _succeeded_runs(instance)
    return [
        label
        for node in lineage()
        if node.in_profile(foundry.settings) and not node.output_hashes
        for label in _report_changes_of(node, foundry, instance, succeeded)
    ]


def _report_changes_of(
    node: Node, foundry: FoundryResource, instance: dg.DagsterInstance, succeeded: set[str]
) -> Iterator[str]:
    known = _known_versions(foundry.home, instance, node, succeeded)
    stored = node.data_versions(foundry, list(known))
    changed = [name for name, event in known.items() if event.data_version != stored[name]]
    if not changed:
        return
    running = {
        run.tags.get(PARTITION_TAG) for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
    }
    now = _known_versions(foundry.home, instance, node, succeeded)
    for name in changed:
        if name not in running and now.get(name) == known[name]:
            tags = {DATA_VERSION_TAG: stored[name], CODE_VERSION_TAG: "none"}
            event = dg.AssetMaterialization(node.name, _CHANGED, partition=name, tags=tags)
            instance.report_runless_asset_event(event)
            yield node.label(name)


def _known_versions(
    home: Home, instance: dg.DagsterInstance, node: Node, succeeded: set[str]
) -> dict[str | None, Materialization]:
    """The latest materialization of each partition, or of the asset as a whole (None)."""
    if node.is_partitioned:
        latest_of_all = _latest_events(home, instance, node, succeeded)
        return cast("dict[str | None, Materialization]", latest_of_all)
    latest = _latest_event(instance, node, None)
    return {None: latest} if latest else {}


def _latest_event(
    instance: dg.DagsterInstance, node: Node, partition: str | None
) -> Materialization | None:
    partitions = [partition] if partition else None
    newest = dg.AssetRecordsFilter(asset_key=dg.AssetKey(node.name), asset_partitions=partitions)
    records = instance.fetch_materializations(newest, limit=1).records
    return _materialization(records[0]) if records else None


def _latest_events(
    home: Home, instance: dg.DagsterInstance, node: Node, succeeded: set[str]
) -> dict[str, Materialization]:
    """Partition -> its latest materialization, of all partitions that have one.

    Dagster finds the ids of these events for all partitions at once, but our tags only in the
    events themselves, which have plots and images. So what was read of an event is stored in a file
    beside Dagster's history, and the next call reads others only: new ones, and those of no run
    that `succeeded`, since numbers of deleted events are given to later ones in SQLite.
    """
    events = instance.get_latest_storage_id_by_partition(
        dg.AssetKey(node.name), dg.DagsterEventType.ASSET_MATERIALIZATION
    )
    file = SqliteFile(home.dagster / "materializations.sqlite", _CREATE, durable=False)
    found = {
        name: known
        for name, known in _load(file, node.name).items()
        if known.event == events.get(name) and known.run_id in succeeded
    }
    new = dict(_read_events(instance, node, [e for name, e in events.items() if name not in found]))
    _store(file, node.name, new)
    return found | new


def _succeeded_runs(instance: dg.DagsterInstance) -> set[str]:
    filters = dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS])
    return set(instance.get_run_ids(filters))


def _read_events(
    instance: dg.DagsterInstance, node: Node, events: Sequence[int]
) -> Iterator[tuple[str, Materialization]]:
    for start in range(0, len(events), _EVENTS_A_QUERY):
        some = events[start : start + _EVENTS_A_QUERY]
        of_these = dg.AssetRecordsFilter(asset_key=dg.AssetKey(node.name), storage_ids=some)
        for record in instance.fetch_materializations(of_these, limit=len(some)).records:
            if record.partition_key:
                yield record.partition_key, _materialization(record)


def _materialization(record: dg.EventLogRecord) -> Materialization:
    assert record.asset_materialization
    tags = record.asset_materialization.tags or {}
    versions = tags.get(FINGERPRINT, ""), tags.get(DATA_VERSION_TAG, "")
    return Materialization(record.storage_id, record.run_id, *versions)


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
