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


def phrase(edit: Edit, *, keep: bool = False) -> str:
    """An edit as a prompt; `parse` reads it back to the same edit.

    Args:
        keep: ask to keep everything else unchanged as well.
    """
    return phrase_command(Command((edit,), keep))


def phrase_command(command: Command) -> str:
    """A command as a prompt, one sentence per edit."""
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


def _noun_phrase(target: Target) -> str:
    """`the red house at the bottom left`."""
    noun = f"the {phrase_noun(target.kind, target.colour)}"
    return noun if target.cell is None else f"{noun} {_at(target.cell)}"


def _sentence(edit: Edit) -> str:
    match edit:
        case Create(background, things):
            return _creation_sentence(background, things)
        case Add():
            return f"Add {_thing(edit)}"
        case Remove(target):
            return f"Remove {_noun_phrase(target)}"
        case Recolour(target, colour):
            return f"Paint {_noun_phrase(target)} {colour}"
        case Move(target, place):
            return f"Move {_noun_phrase(target)} {_destination(place)}"
        case Replace(target, kind, colour):
            noun = with_article(phrase_noun(kind, colour))
            return f"Turn {_noun_phrase(target)} into {noun}"
        case SetBackground(background):
            return f"Change the background to {with_article(_surface(background))}"


def _creation_sentence(background: str, adds: tuple[Add, ...]) -> str:
    sentence = f"Draw {with_article(_surface(background))}"
    if not adds:
        return sentence
    return f"{sentence} with {join_with_and([_thing(add) for add in adds])}"


def _surface(background: str) -> str:
    return _SURFACES.get(background, background)


def _thing(add: Add) -> str:
    noun = with_article(phrase_noun(add.kind, add.colour))
    return noun if add.place == ANYWHERE else f"{noun} {_where(add.place)}"


def _at(cell: int) -> str:
    return f"{'in' if PLACES[cell] == 'center' else 'at'} the {PLACES[cell]}"


def _where(place: GridPlace) -> str:
    return _relation(place) if place.cell is None else _at(place.cell)


def _destination(place: GridPlace) -> str:
    if place == ANYWHERE:
        return "to another place"
    return _relation(place) if place.cell is None else f"to the {PLACES[place.cell]}"


def _relation(place: GridPlace) -> str:
    sideways = place.direction in ("left of", "right of")
    direction = f"to the {place.direction}" if sideways else place.direction
    return f"{direction} {_noun_phrase(place.anchor or Target())}"
