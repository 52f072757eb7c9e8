"""What happens during a trajectory: the loop yields these events, listeners store or show them.

Events are stored as JSON exactly as they were emitted, with images by sha256, and read back with
`event_from_json`. Their class and field names are therefore part of the stored format.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationInfo

from schemas.trajectories import ModelCallRow, TrajectoryStatus
from warehouse import EncodedImage

from .roles import Plan, PlanStep, Verdict


def _load_image(value: EncodedImage | str, info: ValidationInfo) -> EncodedImage:
    if isinstance(value, EncodedImage):
        return value
    image: EncodedImage = (info.context or {})["load_image"](value)
    return image


# In JSON an image is its sha256; the bytes are in the image store.
StoredImage = Annotated[
    EncodedImage,
    PlainSerializer(lambda image: image.sha256, return_type=str),
    PlainValidator(_load_image),
]


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
    """A generator call returned.

    Args:
        iteration: 0-based, counts the images of the step over attempts and candidates.
        prompt: the text that made `image`.
        source: the image that was edited; None: text-to-image.
    """

    step: PlanStep
    iteration: int
    prompt: str
    seed: int
    source: StoredImage | None
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
    """The last event of a trajectory that ended without an error.

    `wasted_draws`: speculative generator calls whose image was not needed.
    """

    status: TrajectoryStatus
    wasted_draws: int = 0


@dataclass(frozen=True)
class TrajectoryFailed:
    """The last event of a trajectory that ended with an error.

    `refused`: the request is to blame; else another try may succeed.
    """

    reason: str
    refused: bool


Event = (
    PlanReady
    | StepStarted
    | TextEmitted
    | ImageGenerated
    | AttemptJudged
    | StepAccepted
    | StepExhausted
    | TrajectoryFinished
    | TrajectoryFailed
)


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as a JSON object; `event` is the name of its class, images are their sha256."""
    name = type(event).__name__
    return {"event": name, **_adapters()[name].dump_python(event, mode="json")}


def event_from_json(record: dict[str, Any], load_image: Callable[[str], EncodedImage]) -> Event:
    """The event that `event_to_json` wrote; equal to it, but its parts are new objects.

    Args:
        load_image: returns the image with a sha256, such as `home.images.get`.

    Raises:
        ValueError: it is no such event (pydantic's ValidationError is one).
        BadImageError: `load_image` did not find an image.
    """
    fields = dict(record)
    name = fields.pop("event", None)
    if name not in _adapters():
        raise ValueError(f"{name!r} is not an event of a trajectory")
    event: Event = _adapters()[name].validate_python(fields, context={"load_image": load_image})
    return event


@cache
def _adapters() -> dict[Any, TypeAdapter[Any]]:
    return {kind.__name__: TypeAdapter(kind) for kind in get_args(Event)}
