"""Outlines: the steps of a plan as exact edits and texts, before their prompts are written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from .instructed_edits import plan_edits
from .instructions import Instructions, read_instructions
from .prompt_parser import parse
from .prompt_writer import (
    creation,
    join_with_and,
    make_plain,
    name_thing,
    phrase,
    phrase_noun,
    with_article,
)
from .request_parser import RequestText, is_number
from .scene import (
    Add,
    Command,
    Create,
    Edit,
    GridPlace,
    Move,
    Recolour,
    Remove,
    Replace,
    Scene,
    SetBackground,
    Target,
    Thing,
    scene_after,
)
from .seeded_random import KeyedRandom
from .story_catalog import CatalogStory, Values, choose_story, fill_text

MAX_CHARACTERS = 4000
"""Of a request."""


@dataclass(frozen=True)
class OutlineStep:
    """A step before its prompt is written: edits with every kind and cell, and its texts."""

    name: str
    instruction: str
    caption: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Outline:
    """Steps of a plan before prompts are written, which may leave cells open with `any_place`."""

    title: str
    steps: tuple[OutlineStep, ...]
    any_place: bool
    values: Values  # of the story's slots
    not_drawn: tuple[str, ...] = ()  # what the request asks for besides, as written
    remarks: tuple[str, ...] = ()  # what cannot be done as requested, in sentences
    instructions: Instructions | None = None  # which it carries out; None: it is a story

    def final_scene(self, before: Scene | None) -> Scene | None:
        """The scene after all steps; None: one of them is impossible."""
        return scene_after([edit for step in self.steps for edit in step.edits], before)


def outline_story(story: CatalogStory, values: Values) -> Outline:
    filled = story.fill_steps(values)
    steps = tuple(OutlineStep(s.name, s.say, s.tell, parse(s.draw).edits) for s in filled)
    return Outline(fill_text(story.title, values), steps, story.free, values)


def outline_request(text: RequestText, before: Scene | None) -> Outline:
    """The story that is requested, or what remains of it; else what the request spells out.

    What is spelled out and wholly understood goes first where it edits a picture, or where the
    story lacks some of it. Without steps if there is nothing to draw.
    """
    if len(text.raw) > MAX_CHARACTERS:
        remark = f"The sketch world reads at most {MAX_CHARACTERS} characters."
        return Outline("", (), False, {}, remarks=(remark,))
    instructions = read_instructions(text)
    story = _outline_story(text, instructions, before)
    if story and not story.not_drawn and before is None:
        return _fitted(story, text, before)
    literal = _outline_instructions(text, instructions, before)
    is_whole = bool(literal.steps) and not (literal.not_drawn or literal.remarks)
    return _fitted(story if story and not is_whole else literal, text, before)


def _outline_story(
    text: RequestText, instructions: Instructions, before: Scene | None
) -> Outline | None:
    """The story that is requested, or what remains of it; None: it is none."""
    story = choose_story(text)
    if story is None:
        return None
    keyed_random = KeyedRandom(text.raw)
    requested = story.choose_values(text, keyed_random)
    default = story.choose_values(RequestText(""), keyed_random)
    # other values if the requested ones leave nothing to do
    others = [default] if before is None else story.all_values()
    for values in chain([requested], others):
        if outline := remaining_outline(outline_story(story, values), before):
            return replace(outline, not_drawn=tuple(_gaps(story, outline, instructions, before)))
    return None


def _gaps(
    story: CatalogStory, outline: Outline, instructions: Instructions, before: Scene | None
) -> Iterator[str]:
    """What a request says of things, as written, that no picture of the story shows."""
    scenes = list(_scenes(outline.steps, before))
    for thing in instructions.things:
        found = (scene.find(thing.target) for scene in scenes)
        there = ([t for t in each if not thing.area or t.cell in thing.area] for each in found)
        most = max(map(len, there), default=0)
        in_story = not story.words.isdisjoint(thing.words.split()) and not thing.area
        if thing.negated and most:
            yield f"no {thing.words}"
        elif not thing.negated and thing.kind and most < (thing.count or 1) and not in_story:
            yield thing.words
    yield from (phrase for phrase in instructions.unknown if is_number(phrase))


def _scenes(steps: Sequence[OutlineStep], scene: Scene | None) -> Iterator[Scene]:
    for step in steps:
        scene = scene_after(step.edits, scene)
        if scene:
            yield scene


def _outline_instructions(
    text: RequestText, instructions: Instructions, before: Scene | None
) -> Outline:
    """What a request spells out, without steps if none of it can be done."""
    done = plan_edits(instructions, before, KeyedRandom(text.raw))
    steps = tuple(map(_step_of, done.steps))
    if not is_achievable(steps, before):
        steps = ()
    title = "the changes to the given picture" if before else _contents(done.scene)
    remarks = tuple(done.remarks)
    not_drawn = (*instructions.unknown, *instructions.undrawn)
    return Outline(title, steps, False, {}, not_drawn, remarks, instructions)


def _contents(scene: Scene) -> str:
    things = [with_article(name_thing(thing)) for thing in scene.cells.values()]
    return f"{join_with_and(things or ['an empty place'])} (background: {scene.background})"


def _fitted(outline: Outline, text: RequestText, before: Scene | None) -> Outline:
    """The outline with the requested number of steps, or as close to it as its edits allow."""
    if not text.step_count or not outline.steps:
        return outline
    steps = fit_step_count(outline.steps, text.step_count, before)
    if len(steps) == text.step_count:
        return replace(outline, steps=steps)
    remark = f"It takes {len(steps)} pictures, not {text.step_count}."
    return replace(outline, steps=steps, remarks=(*outline.remarks, remark))


def fit_step_count(
    steps: Sequence[OutlineStep], count: int, before: Scene | None
) -> tuple[OutlineStep, ...]:
    """Split or merge steps until there are `count`, or as close to it as the edits allow."""
    fitted = list(steps)
    while len(fitted) < count and (at := _splittable(fitted)) is not None:
        fitted[at : at + 1] = _split(fitted[at])
    while len(fitted) > max(1, count):
        merged = _merge_neighbours(fitted, before)
        at = min(range(len(merged)), key=lambda n: (n == 0, len(merged[n].edits)))
        fitted[at : at + 2] = [merged[at]]
    return tuple(fitted)


def is_achievable(steps: Sequence[OutlineStep], scene: Scene | None) -> bool:
    """Whether every step is possible and changes the scene."""
    for step in steps:
        after = scene_after(step.edits, scene)
        if after is None or after == scene:
            return False
        scene = after
    return True


def remaining_outline(outline: Outline, before: Scene | None) -> Outline | None:
    """The outline, or its steps after the one that an image shows.

    None: they are impossible, or the image shows none of the steps, or the last one.
    """
    steps = outline.steps
    if before is not None:
        steps = _avoid_occupied_cells(_steps_after(outline, before), before)
    return replace(outline, steps=steps) if steps and is_achievable(steps, before) else None


def _steps_after(outline: Outline, scene: Scene) -> tuple[OutlineStep, ...]:
    current: Scene | None = None
    for count, step in enumerate(outline.steps, 1):
        current = scene_after(step.edits, current)
        if current is not None and current.key(outline.any_place) == scene.key(outline.any_place):
            return outline.steps[count:]
    return ()


def _avoid_occupied_cells(steps: Sequence[OutlineStep], scene: Scene) -> tuple[OutlineStep, ...]:
    """The steps with new things in free cells of the scene instead of over other things."""
    adapted = []
    for step in steps:
        edits: list[Edit] = []
        for edit in step.edits:
            free = scene.free_cells()
            if isinstance(edit, Add) and edit.place.cell not in free and free:
                edit = replace(edit, place=GridPlace(free[0]))
            edits.append(edit)
            scene = scene_after([edit], scene) or scene
        adapted.append(replace(step, edits=tuple(edits)))
    return tuple(adapted)


def _splittable(steps: Sequence[OutlineStep]) -> int | None:
    """The opening while it has several things, else a step with several edits, if there is one.

    The two edits of an exchange stay together.
    """
    for number, step in enumerate(steps):
        size = sum(len(edit.things) if isinstance(edit, Create) else 1 for edit in step.edits)
        if size > 1 and not all(isinstance(edit, Replace) for edit in step.edits):
            return number
    match steps[0].edits:
        case (Create(things=(_, *_)), *_):
            return 0
    return None


def _split(step: OutlineStep) -> list[OutlineStep]:
    """A step as one without its last edit, or last thing, and one with it."""
    match step.edits:
        case (Create(background, things),):
            opening = replace(step, edits=(Create(background, things[:-1]),))
            return [opening if things[:-1] else _step_of(opening.edits), _step_of(things[-1:])]
    return [_step_of(step.edits[:-1]), _step_of(step.edits[-1:])]


def _merge_neighbours(steps: Sequence[OutlineStep], before: Scene | None) -> list[OutlineStep]:
    merged, scene = [], before
    for first, second in pairwise(steps):
        merged.append(_merge(first, second, scene))
        scene = scene_after(first.edits, scene)
    return merged


def _merge(first: OutlineStep, second: OutlineStep, before: Scene | None) -> OutlineStep:
    """Two steps as one whose edits lead directly to the scene after both."""
    edits = first.edits + second.edits
    after = scene_after(edits, before)
    if after is not None:
        edits = (creation(after),) if before is None else _edits_between(before, after) or edits
    instruction = f"{first.instruction} {second.instruction}"
    return OutlineStep(second.name, instruction, f"{first.caption} {second.caption}", edits)


def _edits_between(before: Scene, after: Scene) -> tuple[Edit, ...]:
    old = {cell: Target(t.kind, t.colour, cell) for cell, t in before.cells.items()}
    removed = [target for cell, target in old.items() if cell not in after.cells]
    edits: list[Edit] = []
    if before.background != after.background:
        edits.append(SetBackground(after.background))
    for cell, new in sorted(after.cells.items()):
        edits += _edit_into(new, cell, old.get(cell), removed)
    return (*edits, *(Remove(target) for target in before.exact_targets() if target in removed))


def _edit_into(new: Thing, cell: int, old: Target | None, removed: list[Target]) -> list[Edit]:
    """The edit that makes a thing, by moving one of `removed` if it is the same."""
    if old is None:
        same = next((t for t in removed if Thing(str(t.kind), str(t.colour)) == new), None)
        if same is None:
            return [Add(new.kind, new.colour, GridPlace(cell))]
        removed.remove(same)
        return [Move(same, GridPlace(cell))]
    if old.kind != new.kind:
        return [Replace(old, new.kind, new.colour)]
    return [Recolour(old, new.colour)] if old.colour != new.colour else []


def _step_of(edits: tuple[Edit, ...]) -> OutlineStep:
    """A step whose texts say what its edits do."""
    instruction = phrase(Command(tuple(make_plain(edit) for edit in edits)))
    captions = [f"{text[0].upper()}{text[1:]}." for text in map(_caption, edits)]
    name = instruction.partition(".")[0]
    return OutlineStep(name, instruction, " ".join(captions), edits)


def _caption(edit: Edit) -> str:
    """What a picture shows after an edit."""
    match edit:
        case Create(background, things):
            nouns = [with_article(phrase_noun(add.kind, add.colour)) for add in things]
            return f"here is {join_with_and(nouns) if nouns else with_article(background)}"
        case Add(kind, colour):
            return f"here is {with_article(phrase_noun(kind, colour))}"
        case Remove(target):
            return f"the {phrase_noun(target.kind, target.colour)} is gone"
        case Recolour(target, colour):
            return f"the {target.kind} is {colour} now"
        case Move(target):
            return f"the {phrase_noun(target.kind, target.colour)} has moved"
        case Replace(target, kind, colour):
            return (
                f"instead of the {target.kind} there is {with_article(phrase_noun(kind, colour))}"
            )
        case SetBackground(background):
            return f"now it is {with_article(background)}"
