"""What happens during a trajectory: the loop yields these events, listeners store or show them.

One listener is here: it makes the rows of `plans`, `trajectories` and `attempts`.

A generation's events are those of its trajectory, preceded by `RunStarted` and, where it was ended
from outside, with `RunTerminated` as the last one. They are stored as a log of JSON lines, exactly
as they were emitted, with images by sha256; listeners replay a log as they follow a running
generation. Class and field names are therefore part of the stored format.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Protocol, get_args

import orjson
from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationInfo

from schemas import StorageError
from schemas.trajectories import AttemptRow, ModelCallRow, PlanRow, TrajectoryRow, TrajectoryStatus
from warehouse import EncodedImage, ImageStore

from .calls.hashing import stable_hash
from .roles import Plan, PlanStep, RequestScope, Roles, Verdict, qualified_name
from .settings import LoopSettings


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


class PromptRef(Protocol):
    """Where rows belong: a prompt of the bank, or a user's request."""

    @property
    def prompt_id(self) -> str: ...

    @property
    def shard(self) -> str: ...


def plan_rows(prompt: PromptRef, plan: Plan, planner: str) -> list[PlanRow]:
    """A row per step; the plan's id is a hash of prompt, planner and all texts of the steps."""
    steps = [asdict(step) for step in plan.steps]
    plan_id = stable_hash("plan", prompt.prompt_id, planner, steps)
    return [
        PlanRow(
            prompt_id=prompt.prompt_id,
            plan_id=plan_id,
            shard=prompt.shard,
            planner=planner,
            reasoning=plan.reasoning,
            **step,
        )
        for step in steps
    ]


def plan_from_rows(rows: Sequence[PlanRow]) -> Plan:
    """The plan of `plan_rows`; its rows in any order."""
    steps = [
        PlanStep(**row.model_dump(include=set(PlanStep.__dataclass_fields__)))
        for row in sorted(rows, key=lambda row: row.step_number)
    ]
    return Plan(tuple(steps), rows[0].reasoning if rows else "")


@dataclass
class TrajectoryRecorder:
    """The rows of one trajectory, as far as it got.

    Its id is a hash of the plan, all loop settings and the models that take part: the same inputs
    make the same trajectory.
    """

    prompt: PromptRef
    plan: Sequence[PlanRow]  # none where there is no plan; final once there is an attempt
    roles: Roles
    settings: LoopSettings
    run: str | None = None  # makes the id different for every run
    _attempts: dict[tuple[int, int], AttemptRow] = field(default_factory=dict, init=False)
    _status: TrajectoryStatus = field(default="quarantined", init=False)
    _steps: int = field(default=0, init=False)

    @property
    def plan_id(self) -> str | None:
        return self.plan[0].plan_id if self.plan else None

    @cached_property
    def trajectory_id(self) -> str:
        roles = self.roles
        scorer = qualified_name(roles.scorer) if self.settings.on_exhausted == "best" else None
        models = [qualified_name(roles.generator), qualified_name(roles.critic), scorer]
        inputs = [self.prompt.prompt_id, self.plan_id, self.settings.model_dump(), models]
        return stable_hash("trajectory", *inputs, *([self.run] if self.run else []))

    def note(self, event: Event) -> None:
        match event:
            case AttemptJudged():
                self._add(event, chosen=False)
            case StepAccepted(chosen=chosen) | StepExhausted(chosen=AttemptJudged() as chosen):
                self._add(chosen, chosen=True)
                self._steps += 1
            case TextEmitted():
                self._steps += 1
            case TrajectoryFinished(status=status):
                self._status = status

    def attempts(self) -> list[AttemptRow]:
        return list(self._attempts.values())

    def trajectory(self, error: str | None) -> TrajectoryRow:
        return TrajectoryRow(
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt.prompt_id,
            plan_id=self.plan_id,
            shard=self.prompt.shard,
            status=self._status,
            on_exhausted=self.settings.on_exhausted,
            t_max=self.settings.t_max,
            steps=self._steps,
            attempts=len(self._attempts),
            error=error,
        )

    def _add(self, attempt: AttemptJudged, chosen: bool) -> None:
        draw, verdict = attempt.draw, attempt.verdict
        self._attempts[draw.step.step_number, draw.iteration] = AttemptRow(
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt.prompt_id,
            shard=self.prompt.shard,
            step_number=draw.step.step_number,
            iteration=draw.iteration,
            prompt=draw.prompt,
            source_image=draw.source.sha256 if draw.source else None,
            image=draw.image.sha256,
            seed=draw.seed,
            accepted=verdict.accepted,
            chosen=chosen,
            refined_prompt="" if verdict.accepted else verdict.refined_prompt,
            reasoning=verdict.reasoning,
            generator=qualified_name(self.roles.generator),
            critic=qualified_name(self.roles.critic),
            generator_seconds=draw.call.seconds,
            critic_seconds=attempt.call.seconds,
        )
