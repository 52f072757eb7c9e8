"""Writes edits as prompts, which `prompt_parser.parse` reads back to the same edits.

The same edit has many wordings: with or without the place, with or without the kind's default
colour, with or without a keep clause. A generator's mistakes depend on that, so plans vary it,
deterministically by the request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import get_args

from .object_catalog import KINDS, PLACES
from .prompt_parser import parse
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
    SetBackground,
    Target,
    Thing,
    interpretations,
    scene_after,
)
from .seeded_random import KeyedRandom

KEEP_CLAUSE = "Keep everything else unchanged."

_SURFACES = {"paper": "sheet of paper", "snow": "field of snow"}
# Synonyms of a sentence's first word that parse to the same edit.
_VERBS: dict[str, tuple[str, ...]] = {
    "Draw": ("Draw", "Show", "Create", "Illustrate", "Paint"),
    "Add": ("Add", "Put", "Place", "Draw", "Include"),
    "Remove": ("Remove", "Take away", "Erase", "Delete"),
    "Move": ("Move", "Bring", "Shift"),
    "Turn": ("Turn", "Change", "Transform"),
    "Paint": ("Paint", "Color", "Make", "Recolor"),
}


def phrase(command: Command) -> str:
    """A command as a prompt, one sentence per edit; `parse` reads it back to the same command."""
    sentences = [f"{_sentence(edit)}." for edit in command.edits]
    return " ".join([*sentences, KEEP_CLAUSE] if command.keep else sentences)


def creation(scene: Scene) -> Create:
    """The edit that draws this scene from scratch, with every colour and cell."""
    adds = (Add(t.kind, t.colour, GridPlace(cell)) for cell, t in sorted(scene.cells.items()))
    return Create(scene.background, tuple(adds))


def make_vague(edit: Edit) -> Edit:
    """The edit without places and colours."""
    match edit:
        case SetBackground():
            return edit
        case Create(background, things):
            return Create(background, tuple(Add(thing.kind) for thing in things))
        case Add(kind):
            return Add(kind)
    target = Target(edit.target.kind, None if edit.target.kind else edit.target.colour)
    match edit:
        case Replace(_, kind):
            return Replace(target, kind)
        case Move(_, place):
            return Move(target, place if place.cell is None else ANYWHERE)
    return replace(edit, target=target)


def make_plain(edit: Edit) -> Edit:
    """The edit as people say it: without the places of new things and of their targets."""
    match edit:
        case Create(background, things):
            return Create(background, tuple(Add(add.kind, add.colour) for add in things))
        case Add(kind, colour):
            return Add(kind, colour)
        case SetBackground():
            return edit
    return replace(edit, target=replace(edit.target, cell=None))


def phrase_noun(kind: str | None, colour: str | None) -> str:
    """`red house`, `house`, `red thing`: a noun without its article."""
    return " ".join(filter(None, (colour, kind or "thing")))


def name_thing(thing: Thing | None) -> str:
    return phrase_noun(thing.kind, thing.colour) if thing else "nothing"


def with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def join_with_and(nouns: Sequence[str]) -> str:
    """`a cat`, `a cat and a dog`, `a cat, a dog and a hen`."""
    *first, last = nouns
    return f"{', '.join(first)} and {last}" if first else last


def _sentence(edit: Edit) -> str:
    match edit:
        case Create(background, things):
            contents = f" with {join_with_and([_added(add) for add in things])}" if things else ""
            return f"Draw {_surface(background)}{contents}"
        case Add():
            return f"Add {_added(edit)}"
        case Remove(target):
            return f"Remove {_definite(target)}"
        case Recolour(target, colour):
            return f"Paint {_definite(target)} {colour}"
        case Move(target, place):
            return f"Move {_definite(target)} {_destination(place)}"
        case Replace(target, kind, colour):
            return f"Turn {_definite(target)} into {with_article(phrase_noun(kind, colour))}"
        case SetBackground(background):
            return f"Change the background to {_surface(background)}"


def _surface(background: str) -> str:
    return with_article(_SURFACES.get(background, background))


def _added(add: Add) -> str:
    noun = with_article(phrase_noun(add.kind, add.colour))
    if add.place == ANYWHERE:
        return noun
    return f"{noun} {_relation(add.place) if add.place.cell is None else _at(add.place.cell)}"


def _definite(target: Target) -> str:
    noun = f"the {phrase_noun(target.kind, target.colour)}"
    return noun if target.cell is None else f"{noun} {_at(target.cell)}"


def _at(cell: int) -> str:
    return f"{'in' if PLACES[cell] == 'center' else 'at'} the {PLACES[cell]}"


def _destination(place: GridPlace) -> str:
    if place == ANYWHERE:
        return "to another place"
    return _relation(place) if place.cell is None else f"to the {PLACES[place.cell]}"


def _relation(place: GridPlace) -> str:
    sideways = place.direction in ("left of", "right of")
    direction = f"to the {place.direction}" if sideways else place.direction
    return f"{direction} {_definite(place.anchor or Target())}"


@dataclass(frozen=True)
class PromptStyle:
    """How explicit a prompt is."""

    places: bool  # name the cells of new things
    colours: bool  # name default colours, and those of targets
    keep: bool  # ask to keep everything else unchanged
    relations: bool  # prefer "above the cup" to "at the top left" if it is as exact
    cells_known: bool = True  # earlier prompts named every cell: it may refer to things by cell


def choose_style(keyed_random: KeyedRandom, step: int, *, first_open_step: int) -> PromptStyle:
    """The style of a step (0-based); from `first_open_step` on, places are left open."""
    return PromptStyle(
        places=step < first_open_step,
        colours=keyed_random.bernoulli(0.5, f"manner {step} colours"),
        keep=step > 0 and keyed_random.bernoulli(0.35, f"manner {step} keep"),
        relations=keyed_random.bernoulli(0.35, f"manner {step} relations"),
        cells_known=step <= first_open_step,
    )


def write_prompt(
    edits: Sequence[Edit], before: Scene | None, style: PromptStyle, keyed_random: KeyedRandom
) -> str:
    """A prompt for edits; the first interpretation of each on `before` is the intended one."""
    scene = before or Scene()
    sentences = []
    for edit in edits:
        sentences.append(_vary_verb(_sentence(_reduce(edit, scene, style)), keyed_random))
        after = scene_after([edit], scene)
        if after is None:
            raise ValueError(f"impossible here: {edit}")
        scene = after
    return " ".join([*sentences, KEEP_CLAUSE] if style.keep else sentences)


def _reduce(edit: Edit, scene: Scene, style: PromptStyle) -> Edit:
    """The edit without what the style omits."""
    if isinstance(edit, Create):
        return replace(edit, things=tuple(_reduce_add(add, style) for add in edit.things))
    exact = interpretations(edit, scene)[0]
    if isinstance(exact, Create | SetBackground):
        return exact
    if isinstance(exact, Add):
        return _prefer_relation(_reduce_add(exact, style), exact, scene, style)
    reduced = replace(exact, target=_reduce_target(exact.target, scene, style))
    if isinstance(reduced, Move):
        return _prefer_relation(reduced, exact, scene, style)
    if isinstance(reduced, Replace):
        return replace(reduced, colour=_reduce_colour(reduced.kind, reduced.colour, style))
    return reduced


def _reduce_add(add: Add, style: PromptStyle) -> Add:
    place = add.place if style.places else ANYWHERE
    return Add(add.kind, _reduce_colour(add.kind, add.colour, style), place)


def _reduce_colour(kind: str, colour: str | None, style: PromptStyle) -> str | None:
    default = KINDS[kind].default_colour
    if style.colours:
        return colour or default
    return None if colour == default else colour


def _reduce_target(target: Target, scene: Scene, style: PromptStyle) -> Target:
    """The shortest name that only the target has; with its colour if the style names colours."""
    if style.colours and style.keep and style.cells_known:
        return target
    by_kind, by_colour = Target(target.kind), Target(target.kind, target.colour)
    options = [by_colour] if style.colours else [by_kind, by_colour]
    return next((o for o in options if len(scene.find(o)) == 1), target)


def _prefer_relation(reduced: Add | Move, exact: Edit, scene: Scene, style: PromptStyle) -> Edit:
    """The edit with its place relative to another thing, if that is unambiguous."""
    if not (style.relations and style.places):
        return reduced
    moved = reduced.target.kind if isinstance(reduced, Move) else reduced.kind
    kinds = [thing.kind for thing in scene.cells.values()]
    anchors = [Target(kind) for kind in kinds if kinds.count(kind) == 1 and kind != moved]
    for anchor, direction in product(anchors, get_args(Direction)):
        relative = replace(reduced, place=GridPlace(None, direction, anchor))
        if interpretations(relative, scene) == [exact]:
            return relative
    return reduced


def _vary_verb(sentence: str, keyed_random: KeyedRandom) -> str:
    """The sentence with another verb, unless that changes its meaning."""
    verb, _, rest = sentence.partition(" ")
    other = f"{keyed_random.pick(_VERBS.get(verb, (verb,)), sentence)} {rest}"
    return f"{other if parse(other) == parse(sentence) else sentence}."
