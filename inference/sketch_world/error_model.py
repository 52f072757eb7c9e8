"""The ways in which the sketch generator gets a picture wrong.

Each function takes an exact edit (see `physics`) or a scene and returns a spoilt one, or None
where this mistake cannot happen.
"""

import numpy as np

from .object_catalog import BACKGROUNDS, KINDS
from .scene import (
    Add,
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
)
from .seeded_random import pick
from .settings import MistakeRates


def place_rate(edit: Edit, rates: MistakeRates) -> float:
    """How likely the place goes wrong, by how exactly the edit says where or which."""
    match edit:
        case Add(place=place) | Move(place=place):
            cell, hinted = place.cell, place.anchor is not None
        case Remove(target) | Recolour(target) | Replace(target):
            cell, hinted = target.cell, target.colour is not None
        case _:
            return 0.0
    if cell is not None:
        return rates.place.exact
    return rates.place.relative if hinted else rates.place.open


def colour_rate(edit: Edit, rates: MistakeRates) -> float:
    """How likely the colour goes wrong, by whether the edit names it."""
    match edit:
        case Add(colour=None) | Replace(colour=None):
            return rates.colour.implied
        case Add() | Replace() | Recolour():
            return rates.colour.named
        case _:
            return 0.0


def wrong_colour(exact: Edit, rng: np.random.Generator) -> Edit | None:
    match exact:
        case Add(kind, colour, place):
            other = _other_colour(kind, {colour}, rng)
            return Add(kind, other, place) if other else None
        case Replace(target, kind, colour):
            other = _other_colour(kind, {colour}, rng)
            return Replace(target, kind, other) if other else None
        case Recolour(target, colour):
            other = _other_colour(target.kind or "", {colour, target.colour}, rng)
            return Recolour(target, other) if other else None
        case _:
            return None


def wrong_kind(exact: Edit, rng: np.random.Generator) -> Edit | None:
    match exact:
        case Add(kind, colour, place):
            thing = _other_thing(kind, colour, rng)
            return Add(thing.kind, thing.colour, place)
        case Replace(target, kind, colour):
            thing = _other_thing(kind, colour, rng)
            return Replace(target, thing.kind, thing.colour)
        case Create(background):
            return Create(_other_background(background, rng))
        case SetBackground(background):
            return SetBackground(_other_background(background, rng))
        case _:
            return None


def wrong_place(
    exact: Edit, right: set[int], scene: Scene, rng: np.random.Generator
) -> Edit | None:
    """The edit in a cell that does not fulfil it, or done to another thing.

    Args:
        right: cells that would fulfil it.
    """
    match exact:
        case Add(kind, colour):
            cell = _wrong_cell(right, scene, rng)
            return None if cell is None else Add(kind, colour, GridPlace(cell=cell))
        case Move(target):
            cell = _wrong_cell(right | {target.cell or 0}, scene, rng)
            return None if cell is None else Move(target, GridPlace(cell=cell))
        case Remove(target):
            other = _other_target(right, scene, rng)
            return Remove(other) if other else None
        case Replace(target, kind, colour):
            other = _other_target(right, scene, rng)
            return Replace(other, kind, colour) if other else None
        case Recolour(target, colour):
            other = _other_target(right, scene, rng, colour)
            return Recolour(other, colour) if other else None
        case _:
            return None


def collateral(before: Scene, after: Scene, rng: np.random.Generator) -> Scene:
    """Damage to a thing that nobody asked to change; without one, a stray thing or background."""
    bystanders = [c for c, thing in sorted(after.cells.items()) if before.cells.get(c) == thing]
    if bystanders:
        return _damaged(after, pick(rng, bystanders), rng)
    free = [c for c in after.free_cells() if c not in before.cells]
    if free:
        return after.with_cell(pick(rng, free), _other_thing("", None, rng))
    return Scene(_other_background(after.background, rng), after.cells)


def _damaged(scene: Scene, cell: int, rng: np.random.Generator) -> Scene:
    thing = scene.cells[cell]
    colour = _other_colour(thing.kind, {thing.colour}, rng)
    ruins = [None, _other_thing(thing.kind, thing.colour, rng)]
    if colour:
        ruins.append(Thing(thing.kind, colour))
    return scene.with_cell(cell, pick(rng, ruins))


def _other_colour(kind: str, wrong: set[str | None], rng: np.random.Generator) -> str | None:
    others = [colour for colour in KINDS[kind].colours if colour not in wrong]
    return pick(rng, others) if others else None


def _other_thing(kind: str, colour: str | None, rng: np.random.Generator) -> Thing:
    """A thing of another kind, of the same colour where there is one."""
    other = KINDS[pick(rng, [name for name in KINDS if name != kind])]
    return Thing(other.name, colour if colour and colour in other.colours else other.colours[0])


def _other_background(background: str, rng: np.random.Generator) -> str:
    return pick(rng, [name for name in BACKGROUNDS if name != background])


def _wrong_cell(right: set[int], scene: Scene, rng: np.random.Generator) -> int | None:
    """A free cell beside the right ones; where all free ones are right, a taken one."""
    wrong = [cell for cell in range(9) if cell not in right]
    free = [cell for cell in wrong if cell not in scene.cells]
    return pick(rng, free or wrong) if wrong else None


def _other_target(
    right: set[int], scene: Scene, rng: np.random.Generator, colour: str | None = None
) -> Target | None:
    """Another thing; with `colour`, one that can take it and does not have it yet."""
    others = [
        Target(thing.kind, thing.colour, cell)
        for cell, thing in sorted(scene.cells.items())
        if cell not in right
        and (colour is None or (colour in KINDS[thing.kind].colours and colour != thing.colour))
    ]
    return pick(rng, others) if others else None
