"""What satisfies a request: ground truth for plans and final images.

A request leaves much open ("grow a flower": of which colour?). Its goals are the final scenes of
its story with every choice of slot values that agrees with what it names. Where the story leaves
places open, only the things count. A request that matches no story requires the things it names.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ..roles import PlanRequest
from .outlines import (
    Outline,
    OutlineStep,
    fit_step_count,
    is_achievable,
    mentioned_things,
    outline_story,
    scene_after,
)
from .perception import perceive_cached
from .planner import remaining_steps
from .request_parser import RequestText
from .scene import Add, Scene
from .story_catalog import CatalogStory, load_catalog

_SceneKey = tuple[str, frozenset]


@dataclass(frozen=True)
class RequiredContents:
    """Things that a scene must contain, among others. `background` None: any."""

    background: str | None
    things: tuple[Add, ...]

    def are_in(self, scene: Scene) -> bool:
        """Whether the scene has every thing, in its colour where one is named."""
        if self.background not in (None, scene.background):
            return False
        unmatched = [(thing.kind, thing.colour) for thing in scene.cells.values()]
        for add in sorted(self.things, key=lambda add: add.colour is None):
            matches = (t for t in unmatched if t[0] == add.kind and add.colour in (None, t[1]))
            match = next(matches, None)
            if match is None:
                return False
            unmatched.remove(match)
        return True


@dataclass(frozen=True)
class Goals:
    """What satisfies a request.

    Attributes:
        final_scenes: keys (`_scene_key`) of accepted final scenes; unused with `contents`.
        any_place: cells do not matter.
        step_counts: accepted numbers of images; empty: any.
        first_step: number of the plan's first step.
        captions: every image needs a caption; else none may have one.
        needs_images: False if the request asks for words only.
        contents: accept any scene with these things.
    """

    final_scenes: frozenset[_SceneKey]
    any_place: bool
    step_counts: frozenset[int]
    first_step: int
    captions: bool
    needs_images: bool = True
    contents: RequiredContents | None = None

    def accept(self, scene: Scene | None) -> bool:
        """Whether a final scene satisfies the request; None: nothing was drawn."""
        if scene is None or not self.needs_images:
            return scene is None and not self.needs_images
        if self.contents:
            return self.contents.are_in(scene)
        return _scene_key(scene, self.any_place) in self.final_scenes


@lru_cache(maxsize=4096)
def goals_of(request: PlanRequest) -> Goals:
    """The goals of a request of the sketch world.

    Raises:
        BadImageError: an input image cannot be decoded.
    """
    text = RequestText(request.text)
    inputs = [perceive_cached(image).scene for image in request.images]
    if inputs and text.wants_words_only:
        return Goals(frozenset(), False, frozenset({0}), 1, captions=False, needs_images=False)
    before = inputs[-1] if inputs else None
    first_step = 1 + ((text.completed_steps or len(inputs)) if inputs else 0)
    outlines = list(_achievable_outlines(text, before))
    if not outlines:
        return _goals_without_story(text, before, first_step)
    return Goals(
        frozenset(_scene_key(scene, outline.any_place) for outline, scene in outlines),
        any(outline.any_place for outline, _ in outlines),
        _step_counts(text, [outline.steps for outline, _ in outlines]),
        first_step,
        text.wants_captions,
    )


def _achievable_outlines(
    text: RequestText, before: Scene | None
) -> Iterator[tuple[Outline, Scene]]:
    """Outlines of the story that a request asks for, and the scene that each ends in."""
    story = load_catalog().choose(text)
    for outline in _story_outlines(story, text, before) if story else ():
        edits = [edit for step in outline.steps for edit in step.edits]
        if scene := scene_after(edits, before):
            yield outline, scene


def _story_outlines(story: CatalogStory, text: RequestText, before: Scene | None) -> list[Outline]:
    """The story with the requested values; as in the planner, with any where none is possible."""
    for values_options in (story.consistent_values(text), story.consistent_values(RequestText(""))):
        outlines = (_remaining(outline_story(story, values), before) for values in values_options)
        if achievable := [outline for outline in outlines if outline]:
            return achievable
    return []


def _remaining(outline: Outline, before: Scene | None) -> Outline | None:
    """The outline, or its steps after a scene; None: it is impossible."""
    if before is None:
        return outline if is_achievable(outline.steps, None) else None
    steps = remaining_steps(outline, before)
    return replace(outline, steps=steps) if steps else None


def _goals_without_story(text: RequestText, before: Scene | None, first_step: int) -> Goals:
    """The things that are named, with those of the input image."""
    things = mentioned_things(text)
    backgrounds = text.names_of("background")
    if before is not None:
        existing = [Add(thing.kind, thing.colour) for thing in before.cells.values()]
        things = [*existing, *things[: len(before.free_cells())]]
        backgrounds = [before.background]
    contents = RequiredContents(backgrounds[0] if backgrounds else None, tuple(things))
    counts = frozenset({text.step_count}) if text.step_count else frozenset()
    return Goals(frozenset(), True, counts, first_step, text.wants_captions, contents=contents)


def _step_counts(text: RequestText, outlines: Sequence[tuple[OutlineStep, ...]]) -> frozenset[int]:
    """The requested number, and the closest to it that the story allows."""
    if not text.step_count:
        return frozenset()
    closest = {len(fit_step_count(steps, text.step_count)) for steps in outlines}
    return frozenset(closest | {text.step_count})


def _scene_key(scene: Scene, any_place: bool) -> _SceneKey:
    """A hashable scene: with its cells, or with the number of each thing."""
    if not any_place:
        return scene.background, frozenset(scene.cells.items())
    return scene.background, frozenset(Counter(scene.cells.values()).items())
