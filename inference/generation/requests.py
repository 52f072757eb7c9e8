"""A user's request, the options it runs with, and a local log of requests that wait or run.

The log also has the rows that are not in the lake yet, and survives kills. Each process appends to
files of its own, which it locks. A file is removed once the lake has its rows; files that no
process locks are those of killed ones.
"""

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from schemas import FoundryError, Row, StorageError, Table
from schemas.errors import first_problem
from schemas.generations import GENERATIONS, Channel
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, PLANS, TRAJECTORIES
from warehouse import Home, ImageStore
from warehouse.journal import Journal

from ..calls.hashing import stable_hash
from ..events import StoredImage
from ..settings import LoopSettings

Rows = Mapping[Table, Sequence[Row]]

TABLES = (GENERATIONS, PLANS, TRAJECTORIES, ATTEMPTS, MODEL_CALLS)
"""Tables with rows of requests."""

_FOLDER = "requests"
_BY_NAME = {table.name: table for table in TABLES}


class GenerationOptions(LoopSettings):
    """Loop settings of one request."""

    candidates: int = Field(
        1,
        ge=1,
        le=16,
        description="Images generated for each prompt of a step; the first that the critic "
        "accepts is chosen",
    )
    draw_ahead: bool = Field(
        True,
        description="Generate the next step's image while the critic still judges this one, where "
        "the generator is idle; the result is the same",
    )


class RequestedAgents(NamedTuple):
    """The agents that a request names; those it does not name are the ones in use.

    Args:
        planner: `promoted`, name@version, a folder, or an id at Hugging Face.
        critic: likewise; or `rl` or `sft`: the checkpoint of that training; or `base`: the
            profile's own, as planner, too.
    """

    planner: str | None = None
    critic: str | None = None


IN_USE = RequestedAgents()


@dataclass(frozen=True)
class GenerationRequest:
    """A request; one with the `generation_id` of an interrupted one continues it."""

    text: str
    images: tuple[StoredImage, ...] = ()  # `<image>` in `text` may stand for each, in order
    options: GenerationOptions = field(default_factory=GenerationOptions)
    agents: RequestedAgents = IN_USE
    channel: Channel = "command"
    generation_id: str = field(default_factory=lambda: secrets.token_hex(16))
    key: str | None = None  # the client's own name for the request
    resumes: bool = False  # there was an earlier run under its `generation_id`

    @property
    def prompt_id(self) -> str:
        """Equal for equal text and images, so that equal seeds give equal results."""
        return stable_hash("request", self.text, [image.sha256 for image in self.images])

    @property
    def shard(self) -> str:
        """Shard of its rows and its journal until the sink moves the rows to a partition."""
        return self.generation_id


_ADAPTER = TypeAdapter(GenerationRequest)


def dump_request(request: GenerationRequest) -> dict[str, Any]:
    """A request as JSON, its images by sha256."""
    dumped: dict[str, Any] = _ADAPTER.dump_python(request, mode="json")
    return dumped


def load_request(content: Mapping[str, Any], images: ImageStore) -> GenerationRequest:
    """The request of `dump_request`; its images are read when they are used."""
    return _ADAPTER.validate_python(content, context={"images": images})


def override_options(defaults: LoopSettings, changes: Mapping[str, object]) -> GenerationOptions:
    """A profile's loop settings with a request's changes; FoundryError if one is invalid."""
    try:
        return GenerationOptions.model_validate({**defaults.model_dump(), **changes})
    except ValidationError as error:
        value = error.errors(include_url=False)[0]["input"]
        raise FoundryError(f"{first_problem(error)}, not {value!r}") from error


def check_text(text: str, images: int) -> None:
    """Raise FoundryError if a request's text is empty, or has more `<image>` than `images`."""
    if not text.strip():
        raise FoundryError("the request is empty: describe what you want to see")
    placeholders = len(re.findall("<image>", text, re.IGNORECASE))
    if placeholders > images:
        number = "1 image is" if images == 1 else f"{images or 'no'} images are"
        raise FoundryError(
            f"the text has {placeholders} <image>, and {number} given: give one for each"
        )


@dataclass(frozen=True)
class Entry:
    """A line of the log.

    `accepted`: a request waits, `content` says which. `started`: likewise, it runs. `ended`: its
    rows are `content["rows"]`, for the partition `content["partition"]`. `removed`: its content is
    deleted, and of its calls those with the ids `content["calls"]`.
    """

    kind: Literal["accepted", "started", "ended", "removed"]
    generation_id: str
    content: dict[str, Any]

    def rows(self) -> dict[Table, list[Row]]:
        stored = self.content.get("rows", {})
        return {
            _BY_NAME[name]: [_BY_NAME[name].row.model_validate(row) for row in rows]
            for name, rows in stored.items()
        }


class RequestLog:
    """The log of one process.

    Raises (all methods): StorageError when the disk is full or read-only.
    """

    def __init__(self, home: Home) -> None:
        self._folder = home.local / _FOLDER
        self._name, self._number = secrets.token_hex(8), 0
        self._unfinished: dict[str, Entry] = {}
        self._current: Journal | None = None

    def note_unfinished(self, entry: Entry) -> None:
        """A request waits, or runs."""
        self._append(entry)
        self._unfinished[entry.generation_id] = entry

    def end(self, generation_id: str, partition: str, rows: Rows) -> None:
        self._unfinished.pop(generation_id, None)
        dumped = {
            table.name: [row.model_dump(mode="json") for row in added]
            for table, added in rows.items()
        }
        self._append(Entry("ended", generation_id, {"partition": partition, "rows": dumped}))

    def remove(self, generation_id: str, call_ids: Collection[str]) -> None:
        self._append(Entry("removed", generation_id, {"calls": list(call_ids)}))

    def rotate(self) -> Journal | None:
        """Begin a new file, with unfinished requests; returns the old one, for `remove_file`."""
        old, self._current = self._current, None
        if old:
            for entry in self._unfinished.values():
                self._append(entry)
        return old

    def close(self) -> None:
        """Leave the file, which has only unfinished requests, to the next process."""
        if self._current:
            self._current.close()
            self._current = None

    def abandoned(self) -> list[tuple[Journal, list[Entry]]]:
        """Files of killed processes, in order, which this process locks until `remove_file`."""
        found = []
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.exists() else ():
            file = Journal(path)
            try:
                file.__enter__()
            except StorageError:  # its process lives
                continue
            found.append((file, [Entry(**record) for record in file.records()]))
        return found

    def _append(self, entry: Entry) -> None:
        if self._current is None:
            self._number += 1
            self._current = Journal(self._folder / f"{self._name}-{self._number:06}.jsonl")
        self._current.append(vars(entry))


def remove_file(file: Journal) -> None:
    """Remove a file before its lock is given back."""
    file.remove()
    file.close()
