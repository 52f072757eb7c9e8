"""How a planner words its prompts: from terse to explicit.

The same edit can be asked for in many ways: with or without the place, with or without a colour
that goes without saying, with or without a plea to keep the rest. A generator's mistakes depend
on that, so plans vary it, deterministically by the request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from .object_catalog import KINDS
from .outlines import scene_after
from .prompt_parser import parse
from .prompt_writer import KEEP_CLAUSE, phrase_command
from .scene import (
    ANYWHERE,
    Add,
    Command,
    Create,
    Direction,
    Edit,
    GridPlace,
    Move,
    Recolour,
    Remove,
    Replace,
    Scene,
    Target,
)
from .scene_edits import readings
from .seeded_random import KeyedRandom

# Other ways to open a sentence, each understood just like the first.
_VERBS: dict[str, tuple[str, ...]] = {
    "Draw": ("Draw", "Show", "Create", "Illustrate", "Paint"),
    "Add": ("Add", "Put", "Place", "Draw", "Include"),
    "Remove": ("Remove", "Take away", "Erase", "Delete"),
    "Move": ("Move", "Bring", "Shift"),
    "Turn": ("Turn", "Change", "Transform"),
    "Paint": ("Paint", "Color", "Make", "Recolor"),
}


@dataclass(frozen=True)
class PromptStyle:
    """How explicit a prompt is."""

    places: bool  # say where new things go
    colours: bool  # name colours that go without saying, and those of things referred to
    keep: bool  # ask to keep everything else unchanged
    relations: bool = False  # prefer "above the cup" to "at the top left", where as exact


def prompt_style_of(chance: KeyedRandom, step: int, *, first_open: int) -> PromptStyle:
    """The manner of a step (0-based); from step `first_open` on, places are left open."""
    purpose = f"manner {step}"
    keep = step > 0 and chance.happens(0.35, f"{purpose} keep")
    colours = chance.happens(0.5, f"{purpose} colours")
    relations = chance.happens(0.35, f"{purpose} relations")
    return PromptStyle(step < first_open, colours, keep, relations)


def word(
    edits: Sequence[Edit],
    before: Scene | None,
    manner: PromptStyle,
    chance: KeyedRandom,
    *,
    settled: bool,
) -> str:
    """A prompt for edits whose readings on `before` start with what is meant.

    Args:
        settled: everything in `before` stands where the plan thinks it does, so that things may
            be referred to by their place.
    """
    scene = before or Scene()
    loose: list[Edit] = []
    for edit in edits:
        loose.append(_loosened(edit, scene, manner, settled))
        scene = _after(edit, scene)
    command = Command(tuple(loose), manner.keep)
    return _varied(phrase_command(command), command.keep, chance)


def _after(edit: Edit, scene: Scene) -> Scene:
    after = scene_after([edit], scene)
    if after is None:
        raise ValueError(f"impossible here: {edit}")
    return after


def _loosened(edit: Edit, scene: Scene, manner: PromptStyle, settled: bool) -> Edit:
    """The edit with what the manner leaves out left out."""
    if isinstance(edit, Create):
        return Create(edit.background, tuple(_loose_add(a, manner) for a in edit.things))
    exact = readings(edit, scene)[0]
    match exact:
        case Add():
            return _related(_loose_add(exact, manner), exact, scene, manner)
        case Remove(target):
            return Remove(_loose_target(target, scene, manner, settled))
        case Recolour(target, colour):
            return Recolour(_loose_target(target, scene, manner, settled), colour)
        case Replace(target, kind, colour):
            loose = _loose_target(target, scene, manner, settled)
            return Replace(loose, kind, _loose_colour(kind, colour, manner))
        case Move(target, place):
            loose = _loose_target(target, scene, manner, settled)
            return _related(Move(loose, place), exact, scene, manner)
        case _:
            return exact


def _loose_add(add: Add, manner: PromptStyle) -> Add:
    colour = add.colour or KINDS[add.kind].colours[0]
    place = add.place if manner.places else ANYWHERE
    return Add(add.kind, _loose_colour(add.kind, colour, manner), place)


def _loose_colour(kind: str, colour: str | None, manner: PromptStyle) -> str | None:
    usual = KINDS[kind].colours[0]
    return None if colour == usual and not manner.colours else colour


def _loose_target(target: Target, scene: Scene, manner: PromptStyle, settled: bool) -> Target:
    """The shortest name that only the target answers to; with its colour where wanted."""
    by_kind = Target(target.kind)
    by_colour = Target(target.kind, target.colour)
    options = [by_colour] if manner.colours else [by_kind, by_colour]
    if manner.colours and manner.keep and settled:
        options = [target]
    return next((o for o in options if len(scene.find(o)) == 1), target)


def _related(loose: Add | Move, exact: Edit, scene: Scene, manner: PromptStyle) -> Edit:
    """The place told by a neighbour, where that leaves no doubt."""
    if not (manner.relations and manner.places):
        return loose
    for place in _relations(scene, loose):
        told = type(loose)(*_with_place(loose, place))
        if readings(told, scene) == [exact]:
            return told
    return loose


def _with_place(edit: Add | Move, place: GridPlace) -> tuple:
    return (edit.kind, edit.colour, place) if isinstance(edit, Add) else (edit.target, place)


def _relations(scene: Scene, edit: Add | Move) -> list[GridPlace]:
    """Places told by things of which there is one, other than what is moved itself."""
    moved = edit.target.kind if isinstance(edit, Move) else edit.kind
    kinds = [thing.kind for thing in scene.cells.values()]
    anchors = [Target(kind) for kind in kinds if kinds.count(kind) == 1 and kind != moved]
    directions: tuple[Direction, ...] = get_args(Direction)
    return [GridPlace(None, direction, a) for a in anchors for direction in directions]


def _varied(text: str, keep: bool, chance: KeyedRandom) -> str:
    """The same prompt with other verbs."""
    sentences = text.replace(KEEP_CLAUSE, "").strip().removesuffix(".").split(". ")
    varied = " ".join(_other_verb(sentence, chance) for sentence in sentences)
    return f"{varied} {KEEP_CLAUSE}" if keep else varied


def _other_verb(sentence: str, chance: KeyedRandom) -> str:
    """The sentence with another verb, as long as it still says the same."""
    verb, _, rest = sentence.partition(" ")
    other = f"{chance.pick(_VERBS.get(verb, (verb,)), sentence)} {rest}"
    return f"{other if parse(other) == parse(sentence) else sentence}."
