"""Runs one request and shows its progress: progress on stderr, text of the answer on stdout."""

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from assets.core.profile import Profile, load_profile
from inference import events
from inference.backends.checkpoint.manifest import AgentRole
from inference.generation.agent_resolver import AgentResolver
from inference.generation.files import output_file, read_image, write_generation
from inference.generation.requests import (
    GenerationOptions,
    GenerationRequest,
    RequestedAgents,
    check_text,
    override_options,
)
from inference.generation.runner import GenerationRunner
from inference.generation.trajectory_view import TrajectoryView
from inference.loop import check_conditioning
from inference.roles import PlanStep, RequestScope
from schemas import FoundryError
from warehouse import Home
from warehouse.result_formats import count_noun

CANCELLED = 130  # exit status after SIGINT, as in shells


def generate_in_terminal(
    text: str,
    image_files: Sequence[Path],
    chosen: Mapping[str, object],
    named: Mapping[AgentRole, str],
    critic: str | None,
    profile_name: str,
    root: str,
    out: Path | None,
) -> int:
    """Run a request, show its progress and write the sequence; returns the exit status.

    `named` and `critic`: see `AgentResolver` and its `resolve`.
    Options that are not `chosen` are those of the profile.

    Raises:
        FoundryError: the request is invalid or failed, or the file cannot be written.
    """
    profile, home = load_profile(profile_name), Home(root)
    images = tuple(map(read_image, image_files))
    check_text(text, len(images))
    options = override_options(profile.loop, chosen)
    agents = RequestedAgents(critic=critic)
    request, path = GenerationRequest(text, images, options, agents), output_file(out)
    screen, started = GenerationScreen(options), time.monotonic()
    try:
        # SIGTERM cancels like SIGINT: finished calls stay in the journal.
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
        state = asyncio.run(_generate(request, profile, home, named, screen))
    except KeyboardInterrupt:
        screen.print("Cancelled.")
        return CANCELLED
    if state.steps:
        write_generation(state, path)
        screen.print(f"{_summary(state)} in {time.monotonic() - started:.1f} s: {path}")
    if isinstance(state.ending, events.TrajectoryFailed):
        if state.ending.refused:  # an answer, and no fault
            screen.print(state.ending.reason)
            return 1
        raise FoundryError(state.ending.reason)
    return 0


async def _generate(
    request: GenerationRequest,
    profile: Profile,
    home: Home,
    named: Mapping[AgentRole, str],
    screen: "GenerationScreen",
) -> TrajectoryView:
    state = TrajectoryView(request.text, request.images)
    with screen.status:
        async with (
            AgentResolver(profile, home, named=named) as resolver,
            GenerationRunner(home, profile.limits) as runner,
        ):
            resolved = await resolver.resolve(request.agents)
            await asyncio.to_thread(check_conditioning, request.options, resolved.generator)
            async with aclosing(runner.run(request, resolved)) as stream:
                async for event in stream:
                    state.note(event)
                    screen.show(event)
    return state


def _summary(state: TrajectoryView) -> str:
    attempts = sum(len(step.attempts) for step in state.steps)
    if not attempts:
        return "Text-only answer"
    return f"{count_noun(len(state.images), 'image')} from {count_noun(attempts, 'attempt')}"


class GenerationScreen:
    """Shows events: a line for each finished step, and a moving status line on terminals."""

    def __init__(self, options: GenerationOptions) -> None:
        self._options = options
        self._console = Console(stderr=True, highlight=False)
        self.status = self._console.status("Loading agents")
        self._scope_lines: list[str] = []  # that were printed

    def print(self, line: str) -> None:
        self._console.print(_printable(line), markup=False, soft_wrap=True)

    def _show_scope(self, scope: RequestScope) -> None:
        lacking = scope.not_drawn if not scope.refusal else ()
        missing = [f"Not drawn: {', '.join(lacking)}"] if lacking else []
        for line in (scope.notice, *scope.remarks, *missing):
            if line not in self._scope_lines:  # the plan may bring more
                self._scope_lines.append(line)
                self.print(line)

    def show(self, event: events.Event) -> None:
        match event:
            case events.RequestUnderstood(scope=scope):
                self._show_scope(scope)
            case events.PlanReady(plan=plan):
                self.print(f"{count_noun(len(plan.steps), 'step')} planned")
            case events.StepStarted(step=step):
                self._update(step, "drawing attempt 1")
            case events.ImageGenerated(step=step, iteration=iteration):
                self._update(step, f"judging attempt {self._attempt(iteration)}")
            case events.AttemptJudged(draw=draw, verdict=verdict) if not verdict.accepted:
                following = min(self._attempt(draw.iteration) + 1, self._options.t_max)
                self._update(draw.step, f"drawing attempt {following}")
            case events.StepAccepted(step=step, chosen=chosen):
                number = self._attempt(chosen.draw.iteration)
                self.print(f"{_title(step)}: accepted at attempt {number}")
            case events.StepExhausted(step=step, chosen=chosen):
                outcome = "one of them is used" if chosen else "stopped"
                attempts = f"none of {count_noun(self._options.t_max, 'attempt')} accepted"
                self.print(f"{_title(step)}: {attempts}, {outcome}")
            case events.TextEmitted(step=step, text=text):
                self._print_text(step, text)

    def _attempt(self, iteration: int) -> int:
        return iteration // self._options.candidates + 1

    def _update(self, step: PlanStep, activity: str) -> None:
        # `Text` does not interpret square brackets.
        self.status.update(Text(_printable(f"{_title(step)}: {activity}")))

    def _print_text(self, step: PlanStep, text: str) -> None:
        """Text goes to stdout; the status line on stderr pauses meanwhile."""
        self.status.stop()
        self.print(_title(step))
        typer.echo(_printable(text))
        self.status.start()


def _title(step: PlanStep) -> str:
    return f"{step.step_number}. {step.step_name}"


def _printable(text: str) -> str:
    """Text of models and users without control characters, which could command a terminal."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in text)
