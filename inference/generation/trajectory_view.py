"""A trajectory as pages, Markdown and contact sheets show it, whether stored or just generated."""

from dataclasses import dataclass

from warehouse import EncodedImage

from ..events import Ending, RunTerminated, TrajectoryFailed, TrajectoryFinished
from ..roles import RequestScope
from .generation_state import GenerationState, StepState

_ENDINGS = {
    "complete": "Complete",
    "exhausted": "Complete, but not every image was accepted",
    "stopped": "Stopped: no attempt was accepted",
    "quarantined": "Quarantined",
}


@dataclass(frozen=True)
class AttemptView:
    """A generated image of a step, with the critic's verdict."""

    image: EncodedImage
    prompt: str
    accepted: bool
    chosen: bool
    reasoning: str
    refined_prompt: str
    overall: float | None = None  # the scorer's grade, 0-10; None: not scored
    number: int = 1  # 1-based, counts the attempts of the step


@dataclass(frozen=True)
class StepView:
    """A plan step; a text-only one has no attempts. `finished`: nothing is missing."""

    number: int
    name: str
    caption: str
    attempts: tuple[AttemptView, ...]
    finished: bool = True

    @property
    def chosen(self) -> AttemptView | None:
        """The attempt whose image the next step started from; None: there is no image."""
        return next((attempt for attempt in self.attempts if attempt.chosen), None)

    @property
    def rejected(self) -> tuple[AttemptView, ...]:
        return tuple(attempt for attempt in self.unused if not attempt.accepted)

    @property
    def unused(self) -> tuple[AttemptView, ...]:
        """All attempts but the chosen one; accepted ones are candidates that were not needed."""
        return tuple(attempt for attempt in self.attempts if not attempt.chosen)


@dataclass(frozen=True)
class TrajectoryView:
    """A trajectory with its request, plan steps and judged attempts."""

    trajectory_id: str
    request: str
    steps: tuple[StepView, ...]
    category: str = ""
    subcategory: str = ""
    reasoning: str = ""
    input_images: tuple[EncodedImage, ...] = ()
    ending: str = ""  # how it ended, in words; empty: not shown
    simulation: tuple[str, ...] = ()  # what a simulated generator says, a sentence each
    failed: bool = False  # it ended with an error, or has not ended

    @property
    def images(self) -> list[EncodedImage]:
        return [step.chosen.image for step in self.steps if step.chosen]


def generation_view(state: GenerationState) -> TrajectoryView:
    return TrajectoryView(
        trajectory_id="generation",
        request=state.text,
        steps=tuple(map(_step_view, state.steps)),
        reasoning=state.plan.reasoning if state.plan else "",
        input_images=state.input_images,
        ending=_ending_text(state.ending),
        simulation=_simulation_notes(state.scope),
        failed=not isinstance(state.ending, TrajectoryFinished),
    )


def _step_view(state: StepState) -> StepView:
    attempts = tuple(
        AttemptView(
            image=attempt.image,
            prompt=attempt.draw.prompt,
            chosen=attempt is state.chosen,
            number=attempt.draw.iteration + 1,
            **vars(verdict),
        )
        for attempt in state.attempts
        if (verdict := attempt.verdict)
    )
    step = state.step
    return StepView(step.step_number, step.step_name, state.text, attempts, state.finished)


def _simulation_notes(scope: RequestScope | None) -> tuple[str, ...]:
    """That the images are simulated, and what they lack."""
    if scope is None:
        return ()
    lacking = scope.not_drawn if not scope.refusal else ()
    missing = [f"Not drawn: {', '.join(lacking)}."] if lacking else []
    return (scope.notice, *scope.remarks, *missing)


def _ending_text(ending: Ending | None) -> str:
    match ending:
        case None:
            return "Not finished"
        case TrajectoryFailed(reason=reason, refused=True):
            return reason
        case TrajectoryFailed(reason=reason) | RunTerminated(reason=reason):
            return f"Failed: {reason}"
        case finished:
            return _ENDINGS[finished.status]
