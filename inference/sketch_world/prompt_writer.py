"""Writes edits as prompts, which `prompt_parser.parse` reads back to the same edits."""

from collections.abc import Sequence

from .object_catalog import PLACES
from .scene import (
    ANYWHERE,
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
)

KEEP_CLAUSE = "Keep everything else unchanged."

_SURFACES = {"paper": "sheet of paper", "snow": "field of snow"}


def phrase(command: Command) -> str:
    """A command as a prompt, one sentence per edit; `parse` reads it back to the same command."""
    sentences = [f"{_sentence(edit)}." for edit in command.edits]
    return " ".join([*sentences, KEEP_CLAUSE] if command.keep else sentences)


def creation(scene: Scene) -> Create:
    """The edit that draws this scene from scratch, with every colour and cell."""
    adds = (Add(t.kind, t.colour, GridPlace(cell)) for cell, t in sorted(scene.cells.items()))
    return Create(scene.background, tuple(adds))


def phrase_noun(kind: str | None, colour: str | None) -> str:
    """`red house`, `house`, `red thing`: a noun without its article."""
    return " ".join(filter(None, (colour, kind or "thing")))


def with_article(noun: str) -> str:
    """The noun with `a` or `an` before it."""
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
    """`a red house at the bottom left`."""
    noun = with_article(phrase_noun(add.kind, add.colour))
    if add.place == ANYWHERE:
        return noun
    return f"{noun} {_relation(add.place) if add.place.cell is None else _at(add.place.cell)}"


def _definite(target: Target) -> str:
    """`the red house at the bottom left`."""
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
