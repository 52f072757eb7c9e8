"""What a request accepts as the last picture of its story: ground truth for plans and pictures.

A request leaves much open ("grow a flower": of which colour?). Its goals are the final scenes of
its story under every filling that agrees with what it names. Where the story leaves places free,
only the things count. Requests that tell no story of the storybook wish for the things they name.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..roles import PlanRequest
from .outlines import (
    Outline,
    OutlineStep,
    achievable,
    fit,
    mentioned_things,
    outline_story,
    scene_after,
)
from .perception import perceive_cached
from .planner import rest_after
from .request_parser import Reading
from .scene import Add, Scene
from .story_catalog import CatalogStory, load_catalog

_Final = tuple[str, frozenset]


@dataclass(frozen=True)
class RequiredContents:
    """Things that a scene must hold, among others. `background` None: any."""

    background: str | None
    things: tuple[Add, ...]

    def granted_by(self, scene: Scene) -> bool:
        """Whether every thing is there, in its colour where one is named."""
        if self.background not in (None, scene.background):
            return False
        left = [(thing.kind, thing.colour) for thing in scene.cells.values()]
        for add in sorted(self.things, key=lambda add: add.colour is None):
            found = next((t for t in left if t[0] == add.kind and add.colour in (None, t[1])), None)
            if found is None:
                return False
            left.remove(found)
        return True


@dataclass(frozen=True)
class Goals:
    """What satisfies a request.

    Attributes:
        finals: final scenes, as `_final` has them; unused where there is a `wish`.
        free: places do not matter.
        step_counts: numbers of pictures that are as asked for; empty: any number is.
        first_step: number that the plan's first step must have.
        captions: every picture gets a caption; else none does.
        draws: False where the request asks for words alone.
    """

    finals: frozenset[_Final]
    free: bool
    step_counts: frozenset[int]
    first_step: int
    captions: bool
    draws: bool = True
    wish: RequiredContents | None = None

    def met_by(self, scene: Scene | None) -> bool:
        """Whether a final scene is right; None: nothing was drawn."""
        if scene is None or not self.draws:
            return scene is None and not self.draws
        if self.wish:
            return self.wish.granted_by(scene)
        return _final(scene, self.free) in self.finals


@lru_cache(maxsize=4096)
def goals_of(request: PlanRequest) -> Goals:
    """The goals of a request of the sketch world.

    Raises:
        BadImageError: a given picture cannot be decoded.
    """
    reading = Reading(request.text)
    given = [perceive_cached(picture).scene for picture in request.images]
    if given and reading.asks_for_words_only:
        return Goals(frozenset(), False, frozenset({0}), 1, captions=False, draws=False)
    before = given[-1] if given else None
    first = 1 + ((reading.earlier_steps or len(given)) if given else 0)
    endings = list(_endings(reading, before))
    if not endings:
        return _requirements(reading, before, first)
    return Goals(
        frozenset(_final(scene, free) for scene, _, free in endings),
        any(free for *_, free in endings),
        _step_counts(reading, [drafts for _, drafts, _ in endings]),
        first,
        reading.wants_captions,
    )


def _endings(
    reading: Reading, before: Scene | None
) -> Iterator[tuple[Scene, tuple[OutlineStep, ...], bool]]:
    """Final scenes of the story that a request asks for, with the drafts that lead there."""
    story = load_catalog().choose(reading)
    for outline in _outlines(story, reading, before) if story else ():
        edits = [edit for draft in outline.drafts for edit in draft.edits]
        if scene := scene_after(edits, before):
            yield scene, outline.drafts, outline.free


def _outlines(story: CatalogStory, reading: Reading, before: Scene | None) -> list[Outline]:
    """The story as asked for; as the planner does, in any way where that cannot be told."""
    for fillings in (story.consistent(reading), story.consistent(Reading(""))):
        told = (_plan_prompts(outline_story(story, values), before) for values in fillings)
        if found := [outline for outline in told if outline]:
            return found
    return []


def _plan_prompts(outline: Outline, before: Scene | None) -> Outline | None:
    """The outline, or what of it is left after a given scene; None: it cannot be told."""
    if before is None:
        return outline if achievable(outline.drafts, None) else None
    rest = rest_after(outline, before)
    return Outline(outline.title, rest, outline.free, outline.values) if rest else None


def _requirements(reading: Reading, before: Scene | None, first: int) -> Goals:
    """The things that are named, with those that are there already."""
    named = mentioned_things(reading)
    backgrounds = reading.named("background")
    if before is not None:
        kept = [Add(thing.kind, thing.colour) for thing in before.cells.values()]
        named, backgrounds = [*kept, *named[: len(before.free_cells())]], [before.background]
    wish = RequiredContents(backgrounds[0] if backgrounds else None, tuple(named))
    asked = frozenset({reading.step_count}) if reading.step_count else frozenset()
    return Goals(frozenset(), True, asked, first, reading.wants_captions, wish=wish)


def _step_counts(reading: Reading, tellings: Sequence[tuple[OutlineStep, ...]]) -> frozenset[int]:
    """The number asked for, and the closest to it that the story allows."""
    if not reading.step_count:
        return frozenset()
    closest = {len(fit(drafts, reading.step_count)) for drafts in tellings}
    return frozenset(closest | {reading.step_count})


def _final(scene: Scene, free: bool) -> _Final:
    """A scene as something to compare: with its cells, or as a bag of things."""
    if not free:
        return scene.background, frozenset(scene.cells.items())
    return scene.background, frozenset(Counter(scene.cells.values()).items())
