"""The closing message of a response: clients show the last text as the answer."""

from ...events import TrajectoryFinished
from ...generation.generation_state import GenerationState, StepState


def closing_text(state: GenerationState) -> str:
    """What follows the last image of a sequence; empty: it ends with text, or with an error."""
    if not isinstance(state.ending, TrajectoryFinished) or not state.steps:
        return ""
    last = state.steps[-1]
    if last.step.prompt is None:
        return ""
    if last.chosen is None:
        return f"Stopped at step {last.step.step_number}: the critic rejected every attempt."
    images = len(state.images)
    done = "Done: 1 picture." if images == 1 else f"Done: {images} pictures."
    return " ".join([done, *map(_remark, filter(_is_rejected, state.steps))])


def _is_rejected(step: StepState) -> bool:
    chosen = step.chosen
    return bool(chosen and chosen.verdict and not chosen.verdict.accepted)


def _remark(step: StepState) -> str:
    return f"The critic rejected every attempt at step {step.step.step_number}; it shows one."
