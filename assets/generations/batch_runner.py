"""Runs a batch: many requests concurrently, their rows in the order of the requests.

They are also written as Parquet of a Hugging Face `datasets` directory:

    datasets.load_dataset(".interleave/exports/generations/requests", split="train")

A row is a request: `images` and `texts` have an entry per step, in order. Every batch is one file,
so that batches can be written concurrently.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inference.calls.progress import Progress
from inference.calls.retry import summarize_error
from inference.calls.worker_pool import WorkerPool
from inference.events import TrajectoryFailed
from inference.generation.agent_resolver import AgentResolver
from inference.generation.requests import GenerationRequest, RequestedAgents
from inference.generation.runner import GenerationRunner
from inference.loop import check_conditioning
from inference.roles import Roles
from schemas import FoundryError, Table
from schemas.generations import GENERATIONS, GenerationRow
from schemas.trajectories import ATTEMPTS, PLANS, PlanRow, QuarantineRow
from warehouse import ImageStore
from warehouse.atomic import atomic_path

from ..core.foundry import FoundryResource
from ..curation.exports.huggingface import datasets_schema, embedded_image
from .batches import Batch
from .settings import GenerationsSettings

Rows = Mapping[Table, Sequence[Any]]  # of one request
_CARD = Path(__file__).with_name("dataset_card.md")
_TEXTS = ("generation_id", "status", "error", "planner", "generator", "critic")
_NUMBERS = ("t_max", "seed", "candidates", "attempts")


@dataclass(frozen=True)
class BatchResults:
    """The rows of the requests that were run, in their order, and the quarantined ones."""

    requests: list[Rows]
    quarantine: list[QuarantineRow]

    def rows(self, table: Table) -> list[Any]:
        return [row for rows in self.requests for row in rows[table]]


def request_of(rows: Rows) -> GenerationRow:
    return rows[GENERATIONS][0]


def steps_of(rows: Rows) -> list[PlanRow]:
    """The steps that were run, in order."""
    return sorted(rows[PLANS], key=lambda step: step.step_number)[: request_of(rows).steps]


async def run_batch(
    foundry: FoundryResource, settings: GenerationsSettings, batch: Batch, progress: Progress
) -> BatchResults:
    """Run the requests of a batch; journaled calls are not made again.

    Raises FoundryError: more requests failed than `limits.failure_share` allows, there are no such
    agents, or the lake cannot be written.
    """
    profile, home, limits = foundry.settings, foundry.home, foundry.settings.limits
    collected: list[Rows] = []
    roles: dict[RequestedAgents, Roles] = {}  # resolved once for the batch
    resolving = asyncio.Lock()

    async def run(request: GenerationRequest) -> QuarantineRow | None:
        try:
            async with resolving:
                if request.agents not in roles:
                    roles[request.agents] = await resolver.resolve(request.agents)
            own = roles[request.agents]
            await asyncio.to_thread(check_conditioning, request.options, own.generator)
        except FoundryError as error:
            return batch.quarantined(request.generation_id, summarize_error(error))
        last = None
        async with aclosing(runner.run(request, own)) as events:
            async for event in events:
                last = event
        if isinstance(last, TrajectoryFailed) and not last.refused:
            return batch.quarantined(request.generation_id, last.reason)
        return None

    pool = WorkerPool(batch.name, limits.in_flight, limits.failure_share, progress)
    async with (
        AgentResolver(profile, home, settings.agents) as resolver,
        GenerationRunner(home, limits, collected) as runner,
    ):
        _, quarantine = await pool.map(run, batch.requests)
    order = {request.generation_id: number for number, request in enumerate(batch.requests)}
    ran = sorted(collected, key=lambda rows: order[request_of(rows).generation_id])
    return BatchResults(ran, [*batch.quarantine, *quarantine])


def write_dataset(images: ImageStore, folder: Path, batch: str, requests: Sequence[Rows]) -> None:
    """Replace a batch's file, row by row: the images of a batch need not fit in memory.

    Raises FoundryError: an image is missing or damaged, or the folder cannot be written.
    """
    target, schema = folder / "data" / f"{batch}.parquet", _schema()
    temporary = folder / f".{batch}-{secrets.token_hex(4)}.tmp"  # not where readers look for data
    try:
        with atomic_path(target, temporary) as draft:
            (folder / "README.md").write_bytes(_CARD.read_bytes())
            with pq.ParquetWriter(draft, schema, write_page_checksum=True) as writer:
                for rows in requests:
                    row = _row(images, rows)
                    writer.write_table(pa.Table.from_pylist([row], schema=schema))
    except OSError as error:
        raise FoundryError(f"{target} cannot be written: {error.strerror or error}") from error


def _row(images: ImageStore, rows: Rows) -> dict[str, Any]:
    request, steps = request_of(rows), steps_of(rows)
    chosen = {each.step_number: each for each in rows[ATTEMPTS] if each.chosen}
    attempts = [chosen.get(step.step_number) for step in steps]
    return {
        **request.model_dump(include={*_TEXTS, *_NUMBERS}),
        "id": request.request_key,
        "request": request.text,
        "given_images": [embedded_image(images, sha256) for sha256 in request.input_images],
        "names": [step.step_name for step in steps],
        "texts": [step.auxiliary_text or step.instruction or "" for step in steps],
        "images": [embedded_image(images, each.image) if each else None for each in attempts],
        "accepted": [each.accepted if each else None for each in attempts],
    }


def _schema() -> pa.Schema:
    text = pa.string()
    fields = {
        **dict.fromkeys(_TEXTS, text),
        **dict.fromkeys(_NUMBERS, pa.int64()),
        "id": text,
        "request": text,
        "given_images": None,
        "names": pa.list_(text),
        "texts": pa.list_(text),
        "images": None,
        "accepted": pa.list_(pa.bool_()),
    }
    return datasets_schema(fields)
