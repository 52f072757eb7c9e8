"""How a story is told in a terminal: progress on stderr, what is answered in words on stdout."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

from inference.events import (
    AttemptJudged,
    Event,
    ImageGenerated,
    PlanReady,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TextEmitted,
)
from inference.generation.requests import GenerationOptions
from inference.roles import PlanStep


class GenerationScreen:
    """The listener that shows a story's progress: a line for every step that is over, and, where
    stderr is a terminal, what is being done."""

    def __init__(self, rules: GenerationOptions) -> None:
        self._rules = rules
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("Getting ready")

    @contextmanager
    def working(self) -> Iterator[None]:
        """While the story is being told."""
        with self._status:
            yield

    def say(self, words: str) -> None:
        """A line for the user."""
        self._console.print(_printable(words), markup=False, soft_wrap=True)

    def note(self, event: Event) -> None:
        """Show the next event."""
        match event:
            case PlanReady(plan=plan):
                self.say(f"{len(plan.steps)} {'step' if len(plan.steps) == 1 else 'steps'} planned")
            case StepStarted(step=step):
                self._doing(step, "is being drawn")
            case ImageGenerated(step=step, iteration=iteration):
                self._doing(step, f"the critic looks at attempt {self._attempt(iteration)}")
            case AttemptJudged(drawn=drawn, verdict=verdict) if not verdict.accepted:
                again = min(self._attempt(drawn.iteration) + 1, self._rules.t_max)
                self._doing(drawn.step, f"attempt {again} is being drawn")
            case StepAccepted(step=step, chosen=chosen):
                number = self._attempt(chosen.drawn.iteration)
                self._over(step, "drawn" if number == 1 else f"drawn at attempt {number}")
            case StepExhausted(step=step, chosen=kept):
                outcome = "one of them is kept" if kept else "the story stops"
                self._over(step, f"none of {self._rules.t_max} attempts accepted, {outcome}")
            case TextEmitted(step=step, text=text):
                self._answer(step, text)

    def _attempt(self, iteration: int) -> int:
        return iteration // self._rules.candidates + 1

    def _doing(self, step: PlanStep, what: str) -> None:
        # As `Text`, in which square brackets mean nothing.
        self._status.update(Text(_printable(f"{step.step_number}. {step.step_name}: {what}")))

    def _over(self, step: PlanStep, outcome: str) -> None:
        self.say(f"{step.step_number}. {step.step_name}: {outcome}")

    def _answer(self, step: PlanStep, text: str) -> None:
        """The words on stdout, with the moving line on stderr out of their way."""
        self._status.stop()
        self.say(f"{step.step_number}. {step.step_name}")
        typer.echo(_printable(text))
        self._status.start()


def _printable(text: str) -> str:
    """Words of models and users, without what would command a terminal."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in text)
