"""Batches of requests: rows understood one by one, the bad ones set aside with their reason."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from inference.engine.hashing import stable_hash
from inference.generation.files import read_picture, version_of
from inference.generation.requests import GenerationRequest, check_text, options_of
from inference.settings import LoopSettings
from schemas import FoundryError
from schemas.trajectories import QuarantineRow
from warehouse import EncodedImage, Home

from .settings import GenerationsSettings
from .source import SourceRow, read_source

STAGE = "generations"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Batch:
    """A partition's requests, and the rows of it that are none."""

    name: str
    requests: list[GenerationRequest] = field(default_factory=list)
    quarantine: list[QuarantineRow] = field(default_factory=list)


def batch_names(settings: GenerationsSettings, home: Home) -> list[str]:
    """The batches that the rows there are make.

    Raises:
        FoundryError: the rows cannot be read.
    """
    count = -(-len(read_source(settings, home)) // settings.batch_size)
    return [f"{settings.name}-{number:04d}" for number in range(count)]


def batch_rows(settings: GenerationsSettings, home: Home, name: str) -> list[SourceRow]:
    """The rows of a batch; rows that say again what an earlier one said have that as a problem.

    Raises:
        FoundryError: the rows cannot be read, or there is no such batch.
    """
    rows = _without_twins(read_source(settings, home))
    source, _, number = name.rpartition("-")
    start = int(number) * settings.batch_size if number.isdecimal() else len(rows)
    if source != settings.name or start >= len(rows):
        raise FoundryError(f"there are no requests for batch {name}: it is of other requests")
    return rows[start : start + settings.batch_size]


def batch_origin(settings: GenerationsSettings, home: Home, name: str) -> list[object]:
    """What the rows of a batch say, and the versions of the files that they name.

    Raises:
        FoundryError: as `batch_rows`.
    """
    reader = _Reader(settings, home, LoopSettings())
    return [
        [row.problem, {column: str(cell) for column, cell in row.cells.items()}, *reader.files(row)]
        for row in batch_rows(settings, home, name)
    ]


def read_batch(settings: GenerationsSettings, home: Home, usual: LoopSettings, name: str) -> Batch:
    """Understand the rows of a batch.

    Args:
        usual: the rules of rows that have none.

    Raises:
        FoundryError: the rows cannot be read, there is no such batch, or every row of it is bad.
    """
    batch, reader = Batch(name), _Reader(settings, home, usual)
    for row in batch_rows(settings, home, name):
        try:
            batch.requests.append(reader.request(row))
        except FoundryError as error:
            reason = f"{reader.where}: row {row.number}: {error}"
            aside = f"{settings.name}/row-{row.number}"
            batch.quarantine.append(
                QuarantineRow(prompt_id=aside, shard=name, stage=STAGE, reason=reason)
            )
    if not batch.requests:
        raise FoundryError(f"batch {name} has no good row; {batch.quarantine[0].reason}")
    return batch


class _Cells(BaseModel):
    """The columns of a row that are no rules."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)

    text: str
    id: str | None = None
    images: list[str] = Field(default_factory=list)
    critic: Literal["rl", "sft"] | None = None

    @field_validator("images", mode="before")
    @classmethod
    def _from_one_cell(cls, value: Any) -> Any:
        """CSV has one cell for all: a JSON list, or names between semicolons."""
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return orjson.loads(value)
        return [name.strip() for name in value.split(";") if name.strip()]


@dataclass(frozen=True)
class _Reader:
    settings: GenerationsSettings
    home: Home
    usual: LoopSettings

    @property
    def where(self) -> str:
        return self.settings.requests or "query"

    def request(self, row: SourceRow) -> GenerationRequest:
        """The request of a row.

        Raises:
            FoundryError: a cell is wrong; names the column.
        """
        if row.problem:
            raise FoundryError(row.problem)
        cells = _checked(row)
        check_text(cells.text, len(cells.images))
        rules = options_of(self.usual, cells.model_extra or {})
        pictures = tuple(map(self._picture, cells.images))
        told = [cells.id, cells.text, [picture.sha256 for picture in pictures]]
        return GenerationRequest(
            cells.text,
            pictures,
            rules,
            cells.critic,
            door="asset",
            generation_id=stable_hash(
                "generation", self.settings.name, told, rules.model_dump(), cells.critic
            ),
            key=cells.id,
        )

    def files(self, row: SourceRow) -> list[str | None]:
        """Versions of the pictures of a row that are files."""
        try:
            names = _checked(row).images
        except FoundryError:
            return []
        return [version_of(self._beside(name)) for name in names if not _SHA256.fullmatch(name)]

    def _picture(self, name: str) -> EncodedImage:
        try:
            if _SHA256.fullmatch(name):
                return self.home.images.get(name)
            return read_picture(self._beside(name))
        except FoundryError as error:
            raise FoundryError(f"images: {error}") from error

    def _beside(self, name: str) -> str:
        """The address of a picture that is named relative to the file."""
        folder, slash, _ = self.where.rpartition("/")
        absolute = "://" in name or name.startswith("/") or self.settings.requests is None
        return name if absolute else f"{folder}{slash}{name}"


def _checked(row: SourceRow) -> _Cells:
    try:
        return _Cells.model_validate(row.cells)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise FoundryError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _without_twins(rows: Sequence[SourceRow]) -> list[SourceRow]:
    """Equal ids, or equal rows where there are none, would be one request in two places."""
    first: dict[str, int] = {}
    kept = []
    for row in rows:
        same = first.setdefault(_identity(row), row.number)
        what = "given twice, first" if "id" in row.cells else "it says what was said"
        problem = row.problem or f"id: {what} in row {same}"
        kept.append(row if same == row.number else SourceRow(row.number, row.cells, problem))
    return kept


def _identity(row: SourceRow) -> str:
    if row.problem:
        return f"row {row.number}"
    name = row.cells.get("id")
    said = sorted((column, str(cell)) for column, cell in row.cells.items())
    return stable_hash("row", said if name is None else str(name))
