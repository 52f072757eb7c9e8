"""The listener that collects a generation's events into steps, attempts and images."""

from dataclasses import dataclass, field

from warehouse import EncodedImage

from ..events import (
    AttemptJudged,
    Ending,
    ImageGenerated,
    PlanReady,
    RequestUnderstood,
    RunEvent,
    RunTerminated,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TextEmitted,
    TrajectoryFailed,
    TrajectoryFinished,
)
from ..roles import Plan, PlanStep, RequestScope, Verdict


@dataclass
class AttemptState:
    """A generated image; `verdict` is None until the critic has judged it."""

    draw: ImageGenerated
    verdict: Verdict | None = None

    @property
    def image(self) -> EncodedImage:
        return self.draw.image


@dataclass
class StepState:
    """A step so far. `finished`: its text was emitted, an attempt accepted, or all rejected."""

    step: PlanStep
    attempts: list[AttemptState] = field(default_factory=list)
    chosen: AttemptState | None = None
    finished: bool = False

    @property
    def text(self) -> str:
        """What the reader sees beside the image, or instead of one."""
        return self.step.text


@dataclass
class GenerationState:
    """A generation so far.

    Args:
        ending: its last event; None while it runs.
        scope: what a generator of few things draws of it; None: any other generator.
    """

    text: str
    input_images: tuple[EncodedImage, ...] = ()
    plan: Plan | None = None
    steps: list[StepState] = field(default_factory=list)
    ending: Ending | None = None
    scope: RequestScope | None = None

    @property
    def images(self) -> list[EncodedImage]:
        """The chosen images of the steps, in order."""
        return [step.chosen.image for step in self.steps if step.chosen]

    def note(self, event: RunEvent) -> None:
        match event:
            case RequestUnderstood(scope=scope):
                self.scope = scope
            case PlanReady(plan=plan):
                self.plan = plan
            case StepStarted(step=step):
                self.steps.append(StepState(step))
            case TextEmitted():
                self.steps[-1].finished = True
            case ImageGenerated():
                self.steps[-1].attempts.append(AttemptState(event))
            case AttemptJudged(draw=draw, verdict=verdict):
                self._attempt(draw).verdict = verdict
            case StepAccepted(chosen=chosen) | StepExhausted(chosen=chosen):
                self.steps[-1].chosen = self._attempt(chosen.draw) if chosen else None
                self.steps[-1].finished = True
            case TrajectoryFinished() | TrajectoryFailed() | RunTerminated():
                self.ending = event

    def _attempt(self, draw: ImageGenerated) -> AttemptState:
        return next(each for each in self.steps[-1].attempts if each.draw == draw)
