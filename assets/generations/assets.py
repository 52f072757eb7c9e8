"""The asset `generations`: users' requests from a file or a query, run batch by batch."""

import asyncio
from collections.abc import Iterable
from typing import Any

import dagster as dg

from inference.backends.checkpoint.checkpoint_refs import promoted
from inference.roles import qualified_name
from schemas import FoundryError, Row
from schemas.generations import GENERATIONS, GenerationRow
from schemas.trajectories import MODEL_CALLS, QUARANTINE
from warehouse.lake import REQUESTS

from ..core.foundry import FoundryResource
from ..core.metadata import model_call_costs, table_metadata
from ..core.node import Partitions, node
from ..core.progress import progress_of
from .batch_runner import BatchResults, Rows, run_batch
from .batches import batch_names, batch_origin, read_batch
from .dataset import write_dataset
from .metadata import batch_metadata
from .settings import GenerationsSettings

# Columns that differ between runs of the same journaled request.
_RUN_COLUMNS = ("seconds", "started_at", "wasted_draws")


def settings_of(foundry: FoundryResource) -> GenerationsSettings:
    """Section `generations` of the profile.

    Raises:
        FoundryError: the profile has none.
    """
    if foundry.settings.generations is None:
        raise FoundryError(
            f"profile {foundry.settings.name} has no section generations: add one that names a "
            "file, such as `generations: {requests: requests.jsonl}`"
        )
    return foundry.settings.generations


def _agents(foundry: FoundryResource, _instance: dg.DagsterInstance) -> list[str | None]:
    """The profile's roles and the promoted checkpoints."""
    roles, home = foundry.roles, foundry.home
    names = [qualified_name(role) for role in (roles.planner, roles.generator, roles.critic)]
    return [*names, promoted("planner", home), promoted("critic", home)]


GENERATION_SET = node(
    name="generations",
    group="generations",
    description="Interleaved sequences for the requests of a file or a query, by the promoted "
    "agents.",
    tables=(GENERATIONS,),
    ledger=(QUARANTINE,),
    deps=("promotion",),
    sections=("generations", "loop"),
    inputs=_agents,
    partitions=Partitions(
        dg.DynamicPartitionsDefinition(name="batches"),
        lambda foundry: batch_names(settings_of(foundry), foundry.home),
        lambda foundry, batch: batch_origin(settings_of(foundry), foundry.home, batch),
    ),
    pool="generator",
)


@dg.asset(**GENERATION_SET.asset_args())
def generations(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    name, settings = context.partition_key, settings_of(foundry)
    fingerprint = GENERATION_SET.fingerprint(foundry, context.instance, name)
    batch = read_batch(settings, foundry.home, foundry.settings.loop, name)
    rows = asyncio.run(run_batch(foundry, settings, batch, progress_of(context)))
    tables = _store_trajectories(foundry, name, rows)
    metadata = _export(foundry, settings, name, rows)
    return GENERATION_SET.record(context, foundry, tables, metadata, fingerprint)


def _store_trajectories(foundry: FoundryResource, batch: str, rows: Rows) -> Rows:
    """Write plans, attempts etc. of the batch; returns the asset's own rows, still to be stored."""
    partition = f"{REQUESTS}{batch}"
    for table in rows.keys() - {GENERATIONS, QUARANTINE}:
        foundry.home.lake.write(table, _in_shard(rows[table], partition), partition)
    earlier = {row.generation_id: row for row in foundry.rows(GENERATIONS, batch)}
    requests = [_keep_run_columns(row, earlier) for row in _in_shard(rows[GENERATIONS], batch)]
    return {GENERATIONS: requests, QUARANTINE: rows[QUARANTINE]}


def _in_shard(rows: Iterable[Row], partition: str) -> list[Any]:
    return [row.model_copy(update={"shard": partition}) for row in rows]


def _keep_run_columns(row: GenerationRow, earlier: dict[str, GenerationRow]) -> GenerationRow:
    """The earlier row where only its run differs: this run has only read the journal."""
    before = earlier.get(row.generation_id)
    if before is None:
        return row
    run_columns = {name: getattr(before, name) for name in _RUN_COLUMNS}
    return before if row.model_copy(update=run_columns) == before else row


def _export(
    foundry: FoundryResource, settings: GenerationsSettings, batch: str, rows: Rows
) -> dict[str, Any]:
    """Write the batch into the dataset; returns metadata."""
    images, results = foundry.home.images, BatchResults.of(rows)
    folder = foundry.home.exports / "generations" / settings.name
    write_dataset(images, folder, batch, results)
    agents = {name for row in results.requests for name in (row.planner, row.critic) if name}
    return {
        **batch_metadata(images, results),
        **model_call_costs(rows[MODEL_CALLS]),
        "dataset": dg.MetadataValue.path(str(folder)),
        "agents": ", ".join(sorted(agents)),
        "quarantine": table_metadata([row.model_dump() for row in rows[QUARANTINE][:20]]),
    }
