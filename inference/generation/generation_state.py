"""The listener that keeps a story as people look at it, while it is being told and afterwards."""

from dataclasses import dataclass, field

from warehouse import EncodedImage

from ..events import (
    AttemptJudged,
    Event,
    ImageGenerated,
    PlanReady,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TextEmitted,
    TrajectoryFailed,
    TrajectoryFinished,
)
from ..roles import Plan, PlanStep, Verdict


@dataclass
class AttemptState:
    """A picture drawn for a step, and once the critic has looked at it, its verdict."""

    draw: ImageGenerated
    verdict: Verdict | None = None

    @property
    def picture(self) -> EncodedImage:
        return self.draw.image


@dataclass
class StepState:
    """A step as far as it got. `over`: what comes of it is settled."""

    step: PlanStep
    attempts: list[AttemptState] = field(default_factory=list)
    chosen: AttemptState | None = None
    over: bool = False

    @property
    def words(self) -> str:
        """What the reader is told beside the picture, or instead of one."""
        return self.step.auxiliary_text or self.step.instruction or ""

    @property
    def refused(self) -> list[AttemptState]:
        """Judged attempts that the story did not go on with."""
        return [each for each in self.attempts if each.verdict and each is not self.chosen]


@dataclass
class GenerationState:
    """What a story has come to. `ending`: None while it is being told."""

    text: str
    given: tuple[EncodedImage, ...] = ()
    plan: Plan | None = None
    steps: list[StepState] = field(default_factory=list)
    ending: TrajectoryFinished | TrajectoryFailed | None = None

    @property
    def pictures(self) -> list[EncodedImage]:
        """The story's pictures, in order."""
        return [step.chosen.picture for step in self.steps if step.chosen]

    def note(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case PlanReady(plan=plan):
                self.plan = plan
            case StepStarted(step=step):
                self.steps.append(StepState(step))
            case TextEmitted():
                self.steps[-1].over = True
            case ImageGenerated():
                self.steps[-1].attempts.append(AttemptState(event))
            case AttemptJudged(draw=draw, verdict=verdict):
                self._attempt(draw).verdict = verdict
            case StepAccepted(chosen=chosen):
                self._settle(chosen)
            case StepExhausted(chosen=exhausted):
                self._settle(exhausted)
            case TrajectoryFinished() | TrajectoryFailed():
                self.ending = event

    def _settle(self, chosen: AttemptJudged | None) -> None:
        self.steps[-1].chosen = self._attempt(chosen.draw) if chosen else None
        self.steps[-1].over = True

    def _attempt(self, draw: ImageGenerated) -> AttemptState:
        return next(each for each in self.steps[-1].attempts if each.draw == draw)
