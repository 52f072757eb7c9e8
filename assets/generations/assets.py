"""The stories that users asked for in a file or a query, batch by batch."""

from collections.abc import Iterable
from typing import Any

import dagster as dg

from inference.backends.checkpoint.checkpoint_refs import promoted
from inference.roles import qualified_name
from schemas import FoundryError, Row
from schemas.generations import GENERATIONS, GenerationRow
from schemas.trajectories import MODEL_CALLS, QUARANTINE
from warehouse.lake import REQUESTS

from ..core.costs import spent
from ..core.foundry import FoundryResource, run_async
from ..core.node import Partitions, node, sample
from ..core.progress import progress_of
from .batch_results import BatchResults, Rows
from .batch_runner import run_batch
from .batches import batch_names, batch_origin, read_batch
from .dataset import dataset_folder, write_dataset
from .metadata import pictures_of
from .settings import GenerationsSettings

# What only a run itself decides: a batch told again from its journals keeps these.
_OF_THE_RUN = ("seconds", "started_at", "wasted_draws")


def settings_of(foundry: FoundryResource) -> GenerationsSettings:
    """Which requests the profile answers.

    Raises:
        FoundryError: none.
    """
    if foundry.settings.generations is None:
        raise FoundryError(
            f"profile {foundry.settings.name} has no section generations: add one that names a "
            "file, such as `generations: {requests: requests.jsonl}`"
        )
    return foundry.settings.generations


def _players(foundry: FoundryResource, _instance: dg.DagsterInstance) -> list[str | None]:
    """Who tells, as far as it is known before."""
    roles, home = foundry.roles, foundry.home
    own = [qualified_name(player) for player in (roles.planner, roles.generator, roles.critic)]
    return [*own, promoted("planner", home), promoted("critic", home)]


def _asked(foundry: FoundryResource, batch: str) -> list[object]:
    return batch_origin(settings_of(foundry), foundry.home, batch)


GENERATION_SET = node(
    name="generations",
    group="generations",
    description="Stories for the requests of a file or a query, told by the promoted agents.",
    tables=(GENERATIONS,),
    ledger=(QUARANTINE,),
    deps=("promotion",),
    sections=("generations", "loop"),
    facts=_players,
    partitions=Partitions(
        dg.DynamicPartitionsDefinition(name="batches"),
        lambda foundry: batch_names(settings_of(foundry), foundry.home),
        _asked,
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
    rows = run_async(run_batch(foundry, settings, batch, progress_of(context)))
    tables = _kept(foundry, name, rows)
    metadata = _published(foundry, settings, name, rows)
    return GENERATION_SET.record(context, foundry, tables, metadata, fingerprint)


def _kept(foundry: FoundryResource, batch: str, rows: Rows) -> Rows:
    """Store what the stories are made of; what remains to be stored, the requests themselves."""
    for table in rows.keys() - {GENERATIONS, QUARANTINE}:
        partition = f"{REQUESTS}{batch}"
        foundry.home.lake.write(table, _placed(rows[table], partition), partition)
    before = {row.generation_id: row for row in foundry.rows(GENERATIONS, batch)}
    told = [_as_before(row, before) for row in _placed(rows[GENERATIONS], batch)]
    return {GENERATIONS: told, QUARANTINE: rows[QUARANTINE]}


def _placed(rows: Iterable[Row], partition: str) -> list[Any]:
    return [row.model_copy(update={"shard": partition}) for row in rows]


def _as_before(row: GenerationRow, before: dict[str, GenerationRow]) -> GenerationRow:
    """The row of the run that really told it, where this one has only read its journal."""
    earlier = before.get(row.generation_id)
    if earlier is None:
        return row
    own = {name: getattr(earlier, name) for name in _OF_THE_RUN}
    return earlier if row.model_copy(update=own) == earlier else row


def _published(
    foundry: FoundryResource, settings: GenerationsSettings, batch: str, rows: Rows
) -> dict[str, Any]:
    """Write the batch into the dataset; what is worth knowing of it."""
    images, answers = foundry.home.images, BatchResults.of(rows)
    folder = dataset_folder(foundry.home, settings.name)
    write_dataset(images, folder, batch, answers)
    told_by = {name for row in answers.requests for name in (row.planner, row.critic) if name}
    return {
        **pictures_of(images, answers),
        **spent(rows[MODEL_CALLS]),
        "dataset": dg.MetadataValue.path(str(folder)),
        "agents": ", ".join(sorted(told_by)),
        "set_aside": sample([row.model_dump() for row in rows[QUARANTINE][:20]]),
    }
