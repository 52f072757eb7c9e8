"""`interleave generate`: one request told in the terminal, and the story as a file."""

import asyncio
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from assets.core.profile import Profile, load_profile
from inference.events import TrajectoryFailed
from inference.generation.agent_resolver import PromotedAgentResolver
from inference.generation.files import output_file, read_picture, write_generation
from inference.generation.generation_state import GenerationState
from inference.generation.requests import GenerationRequest, check_text, options_of
from inference.generation.runner import GenerationRunner
from inference.loop import check_conditioning
from schemas import FoundryError
from warehouse import Home

from .generation_screen import GenerationScreen

CANCELLED = 130  # as shells report what Ctrl-C has ended


@dataclass(frozen=True)
class GenerateCommand:
    """What the command line asks for; `rules` are those that it names."""

    text: str
    images: Sequence[Path]
    rules: Mapping[str, object]
    critic: str | None

    def request(self, profile: Profile) -> GenerationRequest:
        """The request, by the profile's rules where none are named.

        Raises:
            FoundryError: a rule or the text cannot be, or a picture cannot be read.
        """
        pictures = tuple(map(read_picture, self.images))
        check_text(self.text, len(pictures))
        rules = options_of(profile.loop, self.rules)
        return GenerationRequest(self.text, pictures, rules, self.critic)


def generate_in_terminal(wish: GenerateCommand, profile: str, root: str, out: Path | None) -> int:
    """Tell a story, show how it goes, and write it down; the exit status.

    Args:
        out: see `output_file`.

    Raises:
        FoundryError: the wish cannot be fulfilled, or the story not be written.
    """
    settings, home = load_profile(profile), Home(root)
    request, path = wish.request(settings), output_file(out)
    screen, started = GenerationScreen(request.rules), time.monotonic()
    try:
        with _term_like_ctrl_c():
            story = asyncio.run(_told(request, settings, home, screen))
    except KeyboardInterrupt:
        screen.say("cancelled")
        return CANCELLED
    if story.steps:
        write_generation(story, path)
        screen.say(f"{_counted(story)} in {time.monotonic() - started:.1f} s: {path}")
    if isinstance(story.ending, TrajectoryFailed):
        raise FoundryError(story.ending.reason)
    return 0


async def _told(
    request: GenerationRequest, profile: Profile, home: Home, screen: GenerationScreen
) -> GenerationState:
    story = GenerationState(request.text, request.pictures)
    with screen.working():
        async with (
            PromotedAgentResolver(profile, home) as casting,
            GenerationRunner(home, profile.limits) as teller,
        ):
            cast = await casting.cast(request.critic)
            check_conditioning(request.rules, cast.roles.generator)
            async with aclosing(teller.tell(request, cast)) as events:
                async for event in events:
                    story.note(event)
                    screen.note(event)
    return story


def _counted(story: GenerationState) -> str:
    pictures, attempts = len(story.pictures), sum(len(step.attempts) for step in story.steps)
    if not attempts:
        return "An answer in words"
    return f"{pictures} {'picture' if pictures == 1 else 'pictures'} of {attempts} drawn"


@contextmanager
def _term_like_ctrl_c() -> Iterator[None]:
    """A story that is told to end is cancelled, and kept as far as it got."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
