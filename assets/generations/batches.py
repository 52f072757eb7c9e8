"""Batches of requests: rows of a file or query are validated, run, and written as a data set.

Rows are numbered from 1, without the header and empty lines; invalid ones are quarantined. The data
set is Parquet of a Hugging Face `datasets` directory:

    datasets.load_dataset(".interleave/exports/generations/requests", split="train")

A row is a request: `images` and `texts` have an entry per step, in order. Every batch is one file,
so that batches can be written concurrently.
"""

import asyncio
import io
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field, ValidationError, field_validator

from inference.calls.hashing import stable_hash
from inference.calls.progress import Progress
from inference.calls.retry import summarize_error
from inference.calls.worker_pool import WorkerPool
from inference.events import TrajectoryFailed
from inference.generation.agent_resolver import AgentResolver
from inference.generation.files import file_version, read_bytes, read_image
from inference.generation.requests import (
    GenerationRequest,
    RequestedAgents,
    check_text,
    override_options,
)
from inference.generation.runner import GenerationRunner
from inference.loop import check_conditioning
from inference.roles import Roles
from inference.settings import LoopSettings
from schemas import FoundryError, Table
from schemas.errors import first_problem
from schemas.generations import GENERATIONS, GenerationRow
from schemas.trajectories import ATTEMPTS, PLANS, PlanRow, QuarantineRow
from warehouse import EncodedImage, Home, ImageStore
from warehouse.atomic import atomic_path
from warehouse.sql import run_query

from ..core.foundry import FoundryResource
from ..core.row_files import Row, read_rows
from ..curation.exports.huggingface import datasets_schema, embedded_image
from .settings import GenerationsSettings

Rows = Mapping[Table, Sequence[Any]]  # of one request
_CARD = Path(__file__).with_name("dataset_card.md")
_TEXTS = ("generation_id", "status", "error", "planner", "generator", "critic")
_NUMBERS = ("t_max", "seed", "candidates", "attempts")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Batch:
    """A partition's valid requests, and its invalid rows."""

    name: str
    requests: list[GenerationRequest] = field(default_factory=list)
    quarantine: list[QuarantineRow] = field(default_factory=list)

    def quarantined(self, row_id: str, reason: str) -> QuarantineRow:
        return QuarantineRow(prompt_id=row_id, shard=self.name, stage="generations", reason=reason)


@dataclass(frozen=True)
class _SourceRow:
    """A row, or its problem; empty cells are left out."""

    number: int
    cells: dict[str, Any]
    problem: str | None = None

    @property
    def texts(self) -> dict[str, str]:
        return {column: str(cell) for column, cell in self.cells.items()}


def batch_names(settings: GenerationsSettings, home: Home) -> list[str]:
    """The batches that the source's rows make; FoundryError if it cannot be read."""
    count = -(-len(_read_source(settings, home)) // settings.batch_size)
    return [f"{settings.name}-{number:04d}" for number in range(count)]


def batch_origin(settings: GenerationsSettings, home: Home, name: str) -> list[list[Any]]:
    """Cells of a batch's rows, and the versions of the image files that they name, as JSON data.

    Raises FoundryError: the source cannot be read, or there is no such batch.
    """
    rows = _batch_rows(settings, home, name)
    return [[row.problem, row.texts, *_file_versions(settings, row)] for row in rows]


def read_batch(
    settings: GenerationsSettings, home: Home, defaults: LoopSettings, name: str
) -> Batch:
    """Parse the rows of a batch, which may set other options than the `defaults`.

    Raises FoundryError: the source cannot be read, there is no such batch, or no row is valid.
    """
    batch, source = Batch(name), settings.requests or "query"
    for row in _batch_rows(settings, home, name):
        try:
            batch.requests.append(_parse_row(settings, home, defaults, row))
        except FoundryError as error:
            row_id = f"{settings.name}/row-{row.number}"
            reason = f"{source}: row {row.number}: {error}"
            batch.quarantine.append(batch.quarantined(row_id, reason))
    if not batch.requests:
        raise FoundryError(f"batch {name} has no valid row; {batch.quarantine[0].reason}")
    return batch


# A folder has a separator, so that a mistyped name is no folder.
_REFERENCE = "^promoted$|[@/]"


class _Cells(BaseModel, extra="allow", coerce_numbers_to_str=True):
    """Columns of a row; further ones are options of the loop."""

    text: str
    id: str | None = None
    images: list[str] = Field(default_factory=list)
    planner: str | None = Field(None, pattern=_REFERENCE)
    critic: str | None = Field(None, pattern=rf"^(rl|sft)$|{_REFERENCE}")

    @field_validator("images", mode="before")
    @classmethod
    def _from_one_cell(cls, value: Any) -> Any:
        """CSV has one cell for all: a JSON list, or names separated by semicolons."""
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return orjson.loads(value)
        return [name.strip() for name in value.split(";") if name.strip()]


def _parse_row(
    settings: GenerationsSettings, home: Home, defaults: LoopSettings, row: _SourceRow
) -> GenerationRequest:
    if row.problem:
        raise FoundryError(row.problem)
    try:
        cells = _Cells.model_validate(row.cells)
    except ValidationError as error:
        raise FoundryError(first_problem(error)) from error
    check_text(cells.text, len(cells.images))
    options = override_options(defaults, cells.model_extra or {})
    images = tuple(_image(settings, home, name) for name in cells.images)
    content = [cells.id, cells.text, [image.sha256 for image in images]]
    agents = RequestedAgents(cells.planner, cells.critic)
    named = agents if cells.planner else cells.critic
    name = stable_hash("generation", settings.name, content, options.model_dump(), named)
    return GenerationRequest(
        cells.text, images, options, agents, channel="asset", generation_id=name, key=cells.id
    )


def _file_versions(settings: GenerationsSettings, row: _SourceRow) -> list[str | None]:
    try:
        names = _Cells.model_validate(row.cells).images
    except ValidationError:
        return []
    return [file_version(_location(settings, n)) for n in names if not _SHA256.fullmatch(n)]


def _image(settings: GenerationsSettings, home: Home, name: str) -> EncodedImage:
    try:
        if _SHA256.fullmatch(name):
            return home.images.get(name)
        return read_image(_location(settings, name))
    except FoundryError as error:
        raise FoundryError(f"images: {error}") from error


def _location(settings: GenerationsSettings, name: str) -> str:
    """Path or URL of an image; relative names are relative to the requests' file."""
    if settings.requests is None or "://" in name or name.startswith("/"):
        return name
    folder, slash, _ = settings.requests.rpartition("/")
    return f"{folder}{slash}{name}"


def _batch_rows(settings: GenerationsSettings, home: Home, name: str) -> list[_SourceRow]:
    """The rows of a batch; duplicates of earlier rows have that as their problem."""
    rows = _mark_duplicates(_read_source(settings, home))
    source, _, number = name.rpartition("-")
    start = int(number) * settings.batch_size if number.isdecimal() else len(rows)
    if source != settings.name or start >= len(rows):
        raise FoundryError(f"there are no requests for batch {name}: it is of other requests")
    return rows[start : start + settings.batch_size]


def _mark_duplicates(rows: Sequence[_SourceRow]) -> list[_SourceRow]:
    """Rows with the id of an earlier one, or without id and with equal cells, get a problem."""
    first: dict[object, int] = {}
    marked = []
    for row in rows:
        content = row.texts.get("id") or tuple(sorted(row.texts.items()))
        original = first.setdefault(row.number if row.problem else content, row.number)
        if original != row.number:
            what = "id: given twice, first" if "id" in row.cells else "same cells as"
            row = replace(row, problem=f"{what} in row {original}")
        marked.append(row)
    return marked


def _read_source(settings: GenerationsSettings, home: Home) -> list[_SourceRow]:
    if location := settings.requests:
        rows = read_rows(location, io.BytesIO(read_bytes(location)))
    else:
        rows = iter(run_query(home, settings.query or "").to_pylist())
    return [_row(number, cells) for number, cells in enumerate(rows, 1)]


def _row(number: int, cells: Row) -> _SourceRow:
    if isinstance(cells, str):
        return _SourceRow(number, {}, cells)
    filled = {name.strip(): value for name, value in cells.items() if value not in (None, "")}
    return _SourceRow(number, filled)


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
    target, schema = folder / "data" / f"{batch}.parquet", _dataset_schema()
    temporary = folder / f".{batch}-{secrets.token_hex(4)}.tmp"  # not where readers look for data
    try:
        with atomic_path(target, temporary) as draft:
            (folder / "README.md").write_bytes(_CARD.read_bytes())
            with pq.ParquetWriter(draft, schema, write_page_checksum=True) as writer:
                for rows in requests:
                    row = _dataset_row(images, rows)
                    writer.write_table(pa.Table.from_pylist([row], schema=schema))
    except OSError as error:
        raise FoundryError(f"{target} cannot be written: {error.strerror or error}") from error


def _dataset_row(images: ImageStore, rows: Rows) -> dict[str, Any]:
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


def _dataset_schema() -> pa.Schema:
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
