"""Assets: which of them `interleave run` brings up to date, in which order, and whether one is."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from itertools import chain
from typing import NamedTuple, cast

import dagster as dg

import assets
from assets.core.additions import additions
from assets.core.foundry import FoundryResource
from assets.core.node import DATA_VERSION_TAG, FINGERPRINT, NODES, Node, lineage
from assets.core.profile import Profile
from schemas import FoundryError, StorageError
from warehouse import Home
from warehouse.sqlite_file import SqliteFile

from .sources import sources_of

# What schedules promise, and when the UI warns that it did not come, or marks it as stale.
_NIGHTLY = dg.FreshnessPolicy.time_window(timedelta(days=7), warn_window=timedelta(days=2))
_WEEKLY = dg.FreshnessPolicy.time_window(timedelta(days=21), warn_window=timedelta(days=8))
FRESHNESS = {
    **dict.fromkeys(("scores", "exports", "generations"), _NIGHTLY),
    "rounds": _WEEKLY,
    "promotion": dg.FreshnessPolicy.time_window(timedelta(days=60), warn_window=timedelta(days=30)),
}
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


def _assets() -> list[dg.AssetsDefinition]:
    """Every asset below `assets`, with its source file and, if it has one, its freshness policy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        loaded = dg.with_source_code_references(dg.load_assets_from_package_module(assets))
    definitions = cast("list[dg.AssetsDefinition]", loaded)
    return [definition.map_asset_specs(_with_freshness) for definition in definitions]


def _with_freshness(spec: dg.AssetSpec) -> dg.AssetSpec:
    policy = FRESHNESS.get(spec.key.to_user_string())
    return dg.apply_freshness_policy(spec, policy) if policy else spec


def versioned_assets(foundry: FoundryResource) -> list[dg.AssetsDefinition]:
    """The assets, each with its node's code version: Dagster then calls an asset unsynced whose
    settings, models or prompts have changed since it was materialized. What components add, and
    what the profile names elsewhere, is upstream of what reads it."""
    named, added, sources = cache(foundry.without_keys), additions(), sources_of(foundry)

    def with_version(spec: dg.AssetSpec) -> dg.AssetSpec:
        name = spec.key.to_user_string()
        read = [dg.AssetDep(each.asset_key) for each in added if name in each.kind.readers]
        read += [dg.AssetDep(each.key) for each in sources if each.reader == name]
        spec = spec.replace_attributes(deps=[*spec.deps, *read])
        # Settings or a pack that cannot be read are the business of the run that needs them.
        with suppress(FoundryError):
            return spec.replace_attributes(code_version=NODES[name].code_version(named()))
        return spec

    return [definition.map_asset_specs(with_version) for definition in ASSETS]


ASSETS = _assets()
CHECKS = dg.load_asset_checks_from_package_module(assets)


class Stages(NamedTuple):
    """Nodes by when they run, each list in lineage order; a stage reads what earlier ones made."""

    bank: list[Node]
    shards: list[Node]
    aggregates: list[Node]
    base: list[Node]  # and what else trainings read
    agents: list[list[Node]]  # planner's and critic's: no list reads what another one makes
    evaluation: list[Node]
    generations: list[Node]  # users' requests, each node in partitions of its own


def select_nodes(names: Sequence[str], profile: Profile) -> list[Node]:
    """The named nodes; without names, those of the profile that are not optional.

    `+NAME`, as in Dagster's selections: also those of the profile that it depends on.

    Raises:
        FoundryError: there is no such node, or the profile lacks a section that it needs.
    """
    nodes = lineage()
    usual = [node for node in nodes if not node.optional and node.is_enabled(profile)]
    if not names:
        return usual
    known = [node.name for node in nodes]
    named = {name.removeprefix("+") for name in names}
    if unknown := sorted(named - set(known)):
        raise FoundryError(f"no asset named {', '.join(unknown)}; there are: {', '.join(known)}")
    upstream = upstream_of(name[1:] for name in names if name.startswith("+"))
    chosen = [
        node for node in nodes if node.name in named or (node in usual and node.name in upstream)
    ]
    for node in chosen:
        if not node.is_enabled(profile):
            sections = node.missing_sections(profile)
            raise FoundryError(
                f"profile {profile.name} has no section {' and '.join(sections)}, which "
                f"{node.name} needs: add it, or use a profile that has it"
            )
    return chosen


def upstream_of(names: Iterable[str]) -> set[str]:
    """Names of all nodes that these depend on, directly or not."""
    found: set[str] = set()
    queue = list(names)
    while queue:
        new = set(NODES[queue.pop()].deps) - found
        found |= new
        queue += new
    return found


def is_up_to_date(
    node: Node, foundry: FoundryResource, instance: dg.DagsterInstance, partition: str | None = None
) -> bool:
    """Whether the run that last made a node succeeded, its fingerprint (code, settings, inputs) is
    unchanged, and what it wrote is still there."""
    partitions = [partition] if partition else None
    newest = dg.AssetRecordsFilter(asset_key=dg.AssetKey(node.name), asset_partitions=partitions)
    records = instance.fetch_materializations(newest, limit=1).records
    if not records or not records[0].asset_materialization:
        return False
    tags = records[0].asset_materialization.tags or {}
    if tags.get(FINGERPRINT) != node.fingerprint(foundry, instance, partition):
        return False
    if tags.get(DATA_VERSION_TAG) != node.data_version(foundry, partition):
        return False
    run = instance.get_run_by_id(records[0].run_id)
    return run is not None and run.status == dg.DagsterRunStatus.SUCCESS


def up_to_date_partitions(
    node: Node, foundry: FoundryResource, instance: dg.DagsterInstance, partitions: Sequence[str]
) -> set[str]:
    """Those of the partitions of which `is_up_to_date` is true, in a few queries for all."""
    latest = latest_materializations(foundry.home, instance, node.name)
    made = [name for name in partitions if name in latest]
    fingerprints = node.fingerprints(foundry, instance, made)
    versions, succeeded = node.data_versions(foundry, made), succeeded_runs(instance)
    return {
        name
        for name in made
        if latest[name].fingerprint == fingerprints[name]
        and latest[name].data_version == versions[name]
        and latest[name].run_id in succeeded
    }


def stages_of(nodes: Sequence[Node]) -> Stages:
    """The nodes by stage."""
    before = _before_shards()
    after = [node for node in nodes if not node.is_partitioned and node.name not in before]
    aggregates = _aggregates(after)
    first, agents = _checkpoints()
    trained = [node for node in after if node.name in agents]
    # Also what a training reads that is no checkpoint: rubrics, for rewards of plans.
    read = {name for node in trained for name in node.deps} - aggregates - agents
    base = first | read
    return Stages(
        bank=[node for node in nodes if not node.is_partitioned and node.name in before],
        shards=[node for node in nodes if node.sharded],
        aggregates=[node for node in after if node.name in aggregates],
        base=[node for node in after if node.name in base],
        agents=_independent_lists(trained),
        evaluation=[node for node in after if node.name not in aggregates | base | agents],
        generations=[node for node in nodes if node.partitions],
    )


def _before_shards() -> set[str]:
    """Names of the nodes that sharded ones depend on, however far up; and of the imports, which
    `targets` count."""
    names: set[str] = {"imports"}
    for node in reversed(lineage()):
        if node.sharded or node.name in names:
            names |= set(node.deps)
    return names


def _aggregates(after: Sequence[Node]) -> set[str]:
    """Names of the automatic nodes, and of those that they depend on."""
    automatic = [node for node in after if node.automatic]
    return {name for node in automatic for name in (node.name, *node.deps)}


def _checkpoints() -> tuple[set[str], set[str]]:
    """Names of the checkpoints that start from none, and of those that start from one."""
    nodes = [node for node in lineage() if node.group == "checkpoints"]
    names = {node.name for node in nodes}
    agents = {node.name for node in nodes if names & set(node.deps)}
    return names - agents, agents


def _independent_lists(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes in lists of which none depends on another, each in lineage order."""
    lists: list[list[Node]] = []
    for node in nodes:
        upstream = [one for one in lists if {n.name for n in one} & set(node.deps)]
        lists = [one for one in lists if one not in upstream]
        lists.append([*chain.from_iterable(upstream), node])
    return lists


class Materialization(NamedTuple):
    """The event of a partition, its run, and its tags (empty: it has none)."""

    event: int
    run_id: str
    fingerprint: str
    data_version: str


def latest_materializations(
    home: Home, instance: dg.DagsterInstance, asset: str
) -> dict[str, Materialization]:
    """Partition -> its latest materialization, of all partitions that have one.

    Dagster finds the ids of these events for all partitions at once, but our tags only in the
    events themselves, which have plots and images. So what was read of an event is stored in a file
    beside Dagster's history, and the next call reads new events only.
    """
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
