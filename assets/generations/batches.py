"""Batches of requests: rows of a file or query validated one by one, invalid ones quarantined.

Rows are numbered from 1, without the header and empty lines.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from pydantic import BaseModel, Field, ValidationError, field_validator

from inference.calls.hashing import stable_hash
from inference.generation.files import file_version, read_bytes, read_image
from inference.generation.requests import (
    GenerationRequest,
    RequestedAgents,
    check_text,
    override_options,
)
from inference.settings import LoopSettings
from schemas import FoundryError
from schemas.errors import first_problem
from schemas.trajectories import QuarantineRow
from warehouse import EncodedImage, Home
from warehouse.sql import run_query

from ..core.row_files import Row, read_rows
from .settings import GenerationsSettings

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
