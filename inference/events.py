"""What happens during a trajectory: the loop yields these events, listeners store or show them.

A generation's events are those of its trajectory, preceded by `RunStarted` and, where it was ended
from outside, with `RunTerminated` as the last one. They are stored as a log of JSON lines, exactly
as they were emitted, with images by sha256; listeners replay a log as they follow a running
generation. Class and field names are therefore part of the stored format.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, get_args

import orjson
from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationInfo

from schemas import StorageError
from schemas.trajectories import ModelCallRow, TrajectoryStatus
from warehouse import EncodedImage, ImageStore

from .roles import Plan, PlanStep, RequestScope, Verdict


class LazyImage(EncodedImage):
    """An image of a store, read on first use: BadImageError if it is missing or damaged."""

    def __init__(self, images: ImageStore, sha256: str) -> None:
        self.__dict__.update(_images=images, sha256=sha256)  # the base class is frozen

    @cached_property
    def data(self) -> bytes:
        images: ImageStore = self.__dict__["_images"]
        return images.get(self.sha256).data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncodedImage) and self.sha256 == other.sha256

    __hash__ = EncodedImage.__hash__


def _load_image(sha256: str, info: ValidationInfo) -> EncodedImage:
    return LazyImage((info.context or {})["images"], sha256)


# In JSON an image is its sha256; the bytes are in the image store.
StoredImage = Annotated[
    EncodedImage,
    PlainSerializer(lambda image: image.sha256, return_type=str),
    PlainValidator(_load_image),
]


@dataclass(frozen=True)
class RequestUnderstood:
    """What a generator of few things will draw of a request; again if the plan lacks some of it."""

    scope: RequestScope


@dataclass(frozen=True)
class PlanReady:
    """The planner answered."""

    plan: Plan
    call: ModelCallRow


@dataclass(frozen=True)
class StepStarted:
    """The loop begins the next step of the plan."""

    step: PlanStep


@dataclass(frozen=True)
class TextEmitted:
    """The text of a text-only step; no image is generated."""

    step: PlanStep
    text: str


@dataclass(frozen=True)
class ImageGenerated:
    """A generator call returned."""

    step: PlanStep
    iteration: int  # 0-based, counts the images of the step over attempts and candidates
    prompt: str
    seed: int
    source: StoredImage | None  # None: text-to-image
    image: StoredImage
    call: ModelCallRow


@dataclass(frozen=True)
class AttemptJudged:
    """The critic's verdict on a generated image, which completes the attempt."""

    draw: ImageGenerated
    verdict: Verdict
    call: ModelCallRow


@dataclass(frozen=True)
class StepAccepted:
    """The critic accepted; `chosen` is the source of the next step."""

    step: PlanStep
    chosen: AttemptJudged


@dataclass(frozen=True)
class StepExhausted:
    """All T_max attempts were rejected. `chosen`: the next step's source; None: the loop stops."""

    step: PlanStep
    chosen: AttemptJudged | None


@dataclass(frozen=True)
class TrajectoryFinished:
    """The last event of a trajectory that ended without an error."""

    status: TrajectoryStatus
    wasted_draws: int = 0  # speculative generator calls whose image was not needed


@dataclass(frozen=True)
class TrajectoryFailed:
    """The last event of a trajectory that ended with an error."""

    reason: str
    refused: bool  # the request is to blame; else another try may succeed


@dataclass(frozen=True)
class RunStarted:
    """The request left the queue. `versions`: role -> backend, model and version."""

    versions: dict[str, str]


@dataclass(frozen=True)
class RunTerminated:
    """The last event of a generation that was ended from outside."""

    status: Literal["cancelled", "interrupted"]
    reason: str
    resumable: bool = True  # by the same request under the same idempotency key


Event = (
    RequestUnderstood
    | PlanReady
    | StepStarted
    | TextEmitted
    | ImageGenerated
    | AttemptJudged
    | StepAccepted
    | StepExhausted
    | TrajectoryFinished
    | TrajectoryFailed
)
RunEvent = Event | RunStarted | RunTerminated
Ending = TrajectoryFinished | TrajectoryFailed | RunTerminated


def dump_events(events: Iterable[RunEvent]) -> bytes:
    """Events as JSON lines: the name of the class as `event`, then its fields."""
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
    name = type(event).__name__
    return {"event": name, **_adapters()[name].dump_python(event, mode="json")}


def _from_json(fields: dict[str, Any], images: ImageStore) -> RunEvent:
    name = fields.pop("event", None)
    if name not in _adapters():
        raise ValueError(f"{name!r} is not an event of a trajectory")
    return _adapters()[name].validate_python(fields, context={"images": images})


@cache
def _adapters() -> dict[Any, TypeAdapter[Any]]:
    return {kind.__name__: TypeAdapter(kind) for kind in get_args(RunEvent)}
