"""The listener that keeps a story as people look at it, while it is being told and afterwards."""

from dataclasses import dataclass, field

from ...warehouse import Picture
from ..events import (
    Drawn,
    Event,
    Failed,
    Finished,
    Judged,
    Planned,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TextTold,
)
from ..roles import Plan, PlanStep, Verdict


@dataclass
class Attempt:
    """A picture drawn for a step, and once the critic has looked at it, its verdict."""

    drawn: Drawn
    verdict: Verdict | None = None

    @property
    def picture(self) -> Picture:
        return self.drawn.picture


@dataclass
class TellingStep:
    """A step as far as it got. `over`: what comes of it is settled."""

    step: PlanStep
    attempts: list[Attempt] = field(default_factory=list)
    chosen: Attempt | None = None
    over: bool = False

    @property
    def words(self) -> str:
        """What the reader is told beside the picture, or instead of one."""
        return self.step.auxiliary_text or self.step.instruction or ""

    @property
    def refused(self) -> list[Attempt]:
        """Judged attempts that the story did not go on with."""
        return [each for each in self.attempts if each.verdict and each is not self.chosen]


@dataclass
class StorySoFar:
    """What a story has come to. `ending`: None while it is being told."""

    text: str
    given: tuple[Picture, ...] = ()
    plan: Plan | None = None
    steps: list[TellingStep] = field(default_factory=list)
    ending: Finished | Failed | None = None

    @property
    def pictures(self) -> list[Picture]:
        """The story's pictures, in order."""
        return [step.chosen.picture for step in self.steps if step.chosen]

    def note(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case Planned(plan=plan):
                self.plan = plan
            case StepStarted(step=step):
                self.steps.append(TellingStep(step))
            case TextTold():
                self.steps[-1].over = True
            case Drawn():
                self.steps[-1].attempts.append(Attempt(event))
            case Judged(drawn=drawn, verdict=verdict):
                self._attempt(drawn).verdict = verdict
            case StepAccepted(chosen=chosen):
                self._settle(chosen)
            case StepExhausted(chosen=exhausted):
                self._settle(exhausted)
            case Finished() | Failed():
                self.ending = event

    def _settle(self, chosen: Judged | None) -> None:
        self.steps[-1].chosen = self._attempt(chosen.drawn) if chosen else None
        self.steps[-1].over = True

    def _attempt(self, drawn: Drawn) -> Attempt:
        return next(each for each in self.steps[-1].attempts if each.drawn is drawn)
