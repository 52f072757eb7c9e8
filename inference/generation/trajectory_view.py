"""A trajectory as responses, pages, Markdown and contact sheets show it: one listener of events
collects a generation's, and others make them of stored rows."""

from dataclasses import dataclass, field

from schemas.generations import GenerationStatus
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

_ENDINGS = {
    "complete": "Complete",
    "exhausted": "Complete, but not every image was accepted",
    "stopped": "Stopped: no attempt was accepted",
    "quarantined": "Quarantined",
}


@dataclass
class AttemptView:
    """A generated image of a step; `verdict` is None until the critic has judged it.

    Args:
        iteration: 0-based, counts the images of the step.
        chosen: the next step starts from it.
        overall: the scorer's grade, 0-10; None: not scored.
        seconds: of the generator's call; None, as `seed`: unknown.
    """

    image: EncodedImage
    prompt: str = ""
    iteration: int = 0
    verdict: Verdict | None = None
    chosen: bool = False
    overall: float | None = None
    seed: int | None = None
    seconds: float | None = None

    @property
    def number(self) -> int:
        """1-based."""
        return self.iteration + 1

    @property
    def accepted(self) -> bool | None:
        """None, as the critic's texts: not judged."""
        return self.verdict.accepted if self.verdict else None

    @property
    def reasoning(self) -> str | None:
        return self.verdict.reasoning if self.verdict else None

    @property
    def refined_prompt(self) -> str | None:
        return self.verdict.refined_prompt if self.verdict else None


@dataclass
class StepView:
    """A plan step; a text-only one has no attempts.

    Args:
        finished: its text was emitted, an attempt accepted, or all rejected.
    """

    step: PlanStep
    attempts: list[AttemptView] = field(default_factory=list)
    finished: bool = False

    @property
    def number(self) -> int:
        return self.step.step_number

    @property
    def name(self) -> str:
        return self.step.step_name

    @property
    def text(self) -> str:
        """What the reader sees beside the image, or instead of one."""
        return self.step.text

    @property
    def prompt(self) -> str | None:
        """The plan's; None: text only."""
        return self.step.prompt

    @property
    def started(self) -> bool:
        return self.finished or bool(self.attempts)

    @property
    def accepted(self) -> bool | None:
        """Whether the chosen attempt was; None: it has none yet, or needs none."""
        if self.chosen and self.chosen.verdict:
            return self.chosen.accepted
        return False if self.finished and self.prompt is not None else None

    @property
    def image(self) -> EncodedImage | None:
        return self.chosen.image if self.chosen else None

    @property
    def iteration(self) -> int | None:
        return self.chosen.iteration if self.chosen else None

    @property
    def chosen(self) -> AttemptView | None:
        """The attempt whose image the next step starts from; None: there is no image."""
        return next((attempt for attempt in self.attempts if attempt.chosen), None)

    @property
    def judged(self) -> list[AttemptView]:
        return [attempt for attempt in self.attempts if attempt.verdict]

    @property
    def unused(self) -> list[AttemptView]:
        """Judged attempts but the chosen one; accepted ones are candidates that were not needed."""
        return [attempt for attempt in self.judged if not attempt.chosen]

    @property
    def rejected(self) -> list[AttemptView]:
        return [attempt for attempt in self.unused if not attempt.accepted]


@dataclass
class TrajectoryView:
    """A trajectory with its request, plan steps and attempts.

    Args:
        text: of the request.
        ending: a generation's last event; None while it runs, and of stored ones.
        scope: what a generator of few things draws of it; None: any other generator.
        category: of the prompt bank; empty: a user's request.
    """

    text: str
    input_images: tuple[EncodedImage, ...] = ()
    plan: Plan | None = None
    steps: list[StepView] = field(default_factory=list)
    ending: Ending | None = None
    scope: RequestScope | None = None
    trajectory_id: str = "generation"
    category: str = ""
    subcategory: str = ""

    @property
    def images(self) -> list[EncodedImage]:
        """The chosen images of the steps, in order."""
        return [step.chosen.image for step in self.steps if step.chosen]

    @property
    def failed(self) -> bool:
        """It ended with an error, or has not ended."""
        return not isinstance(self.ending, TrajectoryFinished)

    @property
    def ending_text(self) -> str:
        match self.ending:
            case None:
                return "Not finished"
            case TrajectoryFailed(reason=reason, refused=True):
                return reason
            case TrajectoryFailed(reason=reason) | RunTerminated(reason=reason):
                return f"Failed: {reason}"
            case finished:
                return _ENDINGS[finished.status]

    @property
    def simulation(self) -> tuple[str, ...]:
        """What a simulated generator says, a sentence each: that it is one, and what it lacks."""
        if self.scope is None:
            return ()
        lacking = self.scope.not_drawn if not self.scope.refusal else ()
        missing = [f"Not drawn: {', '.join(lacking)}."] if lacking else []
        return (self.scope.notice, *self.scope.remarks, *missing)

    def note(self, event: RunEvent) -> None:
        match event:
            case RequestUnderstood(scope=scope):
                self.scope = scope
            case PlanReady(plan=plan):
                self.plan = plan
            case StepStarted(step=step):
                self.steps.append(StepView(step))
            case TextEmitted():
                self.steps[-1].finished = True
            case ImageGenerated(image=image, prompt=prompt, iteration=iteration):
                attempt = AttemptView(
                    image, prompt, iteration, seed=event.seed, seconds=event.call.seconds
                )
                self.steps[-1].attempts.append(attempt)
            case AttemptJudged(draw=draw, verdict=verdict):
                self._attempt(draw).verdict = verdict
            case StepAccepted(chosen=chosen) | StepExhausted(chosen=chosen):
                if chosen:
                    self._attempt(chosen.draw).chosen = True
                self.steps[-1].finished = True
            case TrajectoryFinished() | TrajectoryFailed() | RunTerminated():
                self.ending = event

    def _attempt(self, draw: ImageGenerated) -> AttemptView:
        attempts = self.steps[-1].attempts
        return next(each for each in attempts if each.iteration == draw.iteration)


def status_of(ending: Ending) -> tuple[GenerationStatus, str | None]:
    """How a user's request ended, and why it has no sequence."""
    match ending:
        case TrajectoryFailed(reason=reason, refused=refused):
            return "refused" if refused else "failed", reason
        case RunTerminated(status=stopped, reason=reason):
            return stopped, reason
        case TrajectoryFinished(status=status):
            return "failed" if status == "quarantined" else status, None
