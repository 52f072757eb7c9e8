"""The events of a generation, and their log: JSON lines, with images by sha256.

A generation's events are those of its trajectory (`inference/events.py`), preceded by `RunStarted`
and, where it was ended from outside, with `RunTerminated` as the last one. Listeners replay a log
as they follow a running generation.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import orjson

from schemas import StorageError
from warehouse import EncodedImage, ImageStore

from ..events import Event, TrajectoryFailed, TrajectoryFinished, event_from_json, event_to_json


@dataclass(frozen=True)
class RunStarted:
    """The request left the queue. `versions`: role -> backend, model and version."""

    versions: dict[str, str]


@dataclass(frozen=True)
class RunTerminated:
    """The last event of a generation that was ended from outside.

    `resumable`: the same request under the same idempotency key continues it.
    """

    status: Literal["cancelled", "interrupted"]
    reason: str
    resumable: bool = True


RunEvent = Event | RunStarted | RunTerminated
Ending = TrajectoryFinished | TrajectoryFailed | RunTerminated

_RUN_EVENTS: dict[str, type[RunStarted | RunTerminated]] = {
    "RunStarted": RunStarted,
    "RunTerminated": RunTerminated,
}


class LazyImage(EncodedImage):
    """An image of a store whose bytes are read when they are first used.

    Raises:
        BadImageError: on first use: it is missing or damaged.
    """

    def __init__(self, images: ImageStore, sha256: str) -> None:
        self.__dict__.update(_images=images, sha256=sha256)  # the base class is frozen

    @cached_property
    def data(self) -> bytes:
        images: ImageStore = self.__dict__["_images"]
        return images.get(self.sha256).data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncodedImage) and self.sha256 == other.sha256

    __hash__ = EncodedImage.__hash__


def dump_events(events: Iterable[RunEvent]) -> bytes:
    """Events as JSON lines."""
    return b"".join(orjson.dumps(_to_json(event)) + b"\n" for event in events)


def load_events(log: bytes, images: ImageStore) -> list[RunEvent]:
    """The events of a log; see `LazyImage` for their images.

    Raises:
        StorageError: it is not a log that `dump_events` wrote.
    """
    try:
        return [_from_json(orjson.loads(line), images) for line in log.splitlines()]
    except (ValueError, TypeError) as error:
        raise StorageError(f"a stored event cannot be read: {error}") from error


def _to_json(event: RunEvent) -> dict[str, Any]:
    if isinstance(event, RunStarted | RunTerminated):
        return {"event": type(event).__name__, **asdict(event)}
    return event_to_json(event)


def _from_json(record: dict[str, Any], images: ImageStore) -> RunEvent:
    if kind := _RUN_EVENTS.get(record.get("event", "")):
        return kind(**{name: value for name, value in record.items() if name != "event"})
    return event_from_json(record, lambda sha256: LazyImage(images, sha256))
