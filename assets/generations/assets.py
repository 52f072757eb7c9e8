"""The asset `generations`: users' requests from a file or a query, run batch by batch, checked."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dagster as dg

from inference.backends.checkpoint.manifest import promoted
from inference.generation.trajectory_view import TrajectoryView
from inference.roles import qualified_name
from schemas import FoundryError, Row
from schemas.generations import GENERATIONS, GenerationRow
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, QUARANTINE
from warehouse import ImageStore
from warehouse.lake import REQUESTS

from ..core import plotting
from ..core.checks import Violations, blocking_checks, damaged_images, distinct_strings
from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, model_call_costs, table_metadata
from ..core.node import Node, Partitions
from ..core.progress import progress_of
from ..trajectories.contact_sheet import contact_sheet
from ..trajectories.trajectory_views import step_views
from .batches import (
    BatchResults,
    Rows,
    batch_names,
    batch_origin,
    read_batch,
    request_of,
    run_batch,
    steps_of,
    write_dataset,
)
from .settings import GenerationsSettings

# Columns that differ between runs of the same journaled request.
_RUN_COLUMNS = ("seconds", "started_at", "wasted_draws")
_SHEET_ROWS = 6


def settings_of(foundry: FoundryResource) -> GenerationsSettings:
    """Section `generations` of the profile; FoundryError if it has none."""
    if foundry.settings.generations is None:
        hint = "add one that names a file, such as `generations: {requests: requests.jsonl}`"
        raise FoundryError(f"profile {foundry.settings.name} has no section generations: {hint}")
    return foundry.settings.generations


def _models(foundry: FoundryResource) -> list[str]:
    roles = foundry.roles
    return [qualified_name(role) for role in (roles.planner, roles.generator, roles.critic)]


def _agents(foundry: FoundryResource, _instance: dg.DagsterInstance) -> list[str | None]:
    """The promoted checkpoints."""
    in_use = promoted(foundry.home)
    return [in_use.get("planner"), in_use.get("critic")]


GENERATION_SET = Node(
    name="generations",
    group="generations",
    description="Interleaved sequences for the requests of a file or a query, by the promoted "
    "agents.",
    tables=(GENERATIONS,),
    ledger=(QUARANTINE,),
    deps=("promotion",),
    sections=("generations", "loop"),
    config=_models,
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
    results = asyncio.run(run_batch(foundry, settings, batch, progress_of(context)))
    requests = _store_trajectories(foundry, name, results)
    folder = foundry.home.exports / "generations" / settings.name
    write_dataset(foundry.home.images, folder, name, results.requests)
    tables = {GENERATIONS: requests, QUARANTINE: results.quarantine}
    metadata = _batch_metadata(foundry.home.images, results, folder)
    return GENERATION_SET.record(context, foundry, tables, metadata, fingerprint)


def _store_trajectories(
    foundry: FoundryResource, batch: str, results: BatchResults
) -> list[GenerationRow]:
    """Write plans, attempts etc. of the batch; returns its requests, still to be stored."""
    partition = f"{REQUESTS}{batch}"
    for table in {table for rows in results.requests for table in rows} - {GENERATIONS}:
        foundry.home.lake.write(table, _in_shard(results.rows(table), partition), partition)
    earlier = {row.generation_id: row for row in foundry.rows(GENERATIONS, batch)}
    requests = _in_shard(results.rows(GENERATIONS), batch)
    return [_keep_run_columns(row, earlier.get(row.generation_id, row)) for row in requests]


def _in_shard(rows: Iterable[Row], partition: str) -> list[Any]:
    return [row.model_copy(update={"shard": partition}) for row in rows]


def _keep_run_columns(row: GenerationRow, earlier: GenerationRow) -> GenerationRow:
    """The earlier row where only its run differs: this run has only read the journal."""
    run_columns = {name: getattr(earlier, name) for name in _RUN_COLUMNS}
    return earlier if row.model_copy(update=run_columns) == earlier else row


def _batch_metadata(images: ImageStore, results: BatchResults, folder: Path) -> dict[str, Any]:
    requests: list[GenerationRow] = results.rows(GENERATIONS)
    statuses = plotting.status_counts(Counter(row.status for row in requests), "requests")
    best = sorted(results.requests, key=_sheet_order)[:_SHEET_ROWS]
    views = [_trajectory_view(images, rows) for rows in best]
    sheet = plotting.small_png(contact_sheet(views, image_size=128), colours=255)
    agents = {name for row in requests for name in (row.planner, row.critic) if name}
    return {
        "statuses": image_metadata(statuses, "Requests by status"),
        "stories": image_metadata(sheet, "Some generations of this batch"),
        **model_call_costs(results.rows(MODEL_CALLS)),
        "dataset": dg.MetadataValue.path(str(folder)),
        "agents": ", ".join(sorted(agents)),
        "quarantine": table_metadata([row.model_dump() for row in results.quarantine[:20]]),
    }


def _sheet_order(rows: Rows) -> tuple[bool, ...]:
    """Complete ones with images first, those with rejected attempts before the others."""
    request = request_of(rows)
    no_rejections = request.attempts == len(request.images)
    return request.status != "complete", not request.images, no_rejections


def _trajectory_view(images: ImageStore, rows: Rows) -> TrajectoryView:
    request, steps = request_of(rows), steps_of(rows)
    return TrajectoryView(
        request.text,
        steps=step_views(images, steps, rows[ATTEMPTS]),
        category=request.request_key or "request",
        subcategory=request.status,
    )


def _images_intact(foundry: FoundryResource, batch: str | None) -> Violations:
    lake, images = foundry.home.lake, foundry.home.images
    batches = [batch] if batch else lake.partitions(GENERATIONS)
    attempts = lake.read(ATTEMPTS, [f"{REQUESTS}{name}" for name in batches], ["image"])
    requests = lake.read(GENERATIONS, batches, ["images", "input_images"])
    return damaged_images(images, {*distinct_strings(attempts), *distinct_strings(requests)})


def _attempts_complete(foundry: FoundryResource, batch: str | None) -> Violations:
    """Requests whose number of attempts in the lake differs from their column `attempts`."""
    lake, batches = foundry.home.lake, [batch] if batch else None
    columns = ["generation_id", "trajectory_id", "shard", "attempts"]
    requests = lake.read(GENERATIONS, batches, columns)
    partitions = sorted({f"{REQUESTS}{name}" for name in requests["shard"].to_pylist()})
    attempts = lake.read(ATTEMPTS, partitions, ["trajectory_id"])["trajectory_id"].to_pylist()
    return [
        row
        for row in requests.to_pylist()
        if attempts.count(row["trajectory_id"]) != row["attempts"]
    ]


generations_checks = blocking_checks(
    GENERATION_SET,
    pictures_intact=("Every image is in the store, as it was generated", _images_intact),
    attempts_there=("Every request's attempts are in the lake", _attempts_complete),
)
