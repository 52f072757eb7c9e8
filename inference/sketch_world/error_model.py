"""The mistakes of the sketch generator.

Each function takes an exact edit (see `scene_edits`) or a scene and returns a wrong one, or None
where this mistake is impossible.
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
    """How likely the place goes wrong, by how exactly the edit names the place or target."""
    match edit:
        case Add(place=place) | Move(place=place):
            cell, is_relative = place.cell, place.anchor is not None
        case Remove(target) | Recolour(target) | Replace(target):
            cell, is_relative = target.cell, target.colour is not None
        case _:
            return 0.0
    if cell is not None:
        return rates.place.exact
    return rates.place.relative if is_relative else rates.place.open


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
    exact: Edit, correct_cells: set[int], scene: Scene, rng: np.random.Generator
) -> Edit | None:
    """The edit in a cell that does not fulfil it, or done to another thing.

    Args:
        correct_cells: cells that would fulfil it.
    """
    match exact:
        case Add(kind, colour):
            cell = _wrong_cell(correct_cells, scene, rng)
            return None if cell is None else Add(kind, colour, GridPlace(cell=cell))
        case Move(target):
            cell = _wrong_cell(correct_cells | {target.cell or 0}, scene, rng)
            return None if cell is None else Move(target, GridPlace(cell=cell))
        case Remove(target):
            other = _other_target(correct_cells, scene, rng)
            return Remove(other) if other else None
        case Replace(target, kind, colour):
            other = _other_target(correct_cells, scene, rng)
            return Replace(other, kind, colour) if other else None
        case Recolour(target, colour):
            other = _other_target(correct_cells, scene, rng, colour)
            return Recolour(other, colour) if other else None
        case _:
            return None


def add_collateral_damage(before: Scene, after: Scene, rng: np.random.Generator) -> Scene:
    """Damage an unchanged thing; without one, add a thing or change the background."""
    unchanged = [c for c, thing in sorted(after.cells.items()) if before.cells.get(c) == thing]
    if unchanged:
        return _damage(after, pick(rng, unchanged), rng)
    free = [c for c in after.free_cells() if c not in before.cells]
    if free:
        return after.with_cell(pick(rng, free), _other_thing("", None, rng))
    return Scene(_other_background(after.background, rng), after.cells)


def _damage(scene: Scene, cell: int, rng: np.random.Generator) -> Scene:
    """The scene with the cell's thing removed, replaced or recoloured."""
    thing = scene.cells[cell]
    colour = _other_colour(thing.kind, {thing.colour}, rng)
    options = [None, _other_thing(thing.kind, thing.colour, rng)]
    if colour:
        options.append(Thing(thing.kind, colour))
    return scene.with_cell(cell, pick(rng, options))


def _other_colour(kind: str, excluded: set[str | None], rng: np.random.Generator) -> str | None:
    others = [colour for colour in KINDS[kind].colours if colour not in excluded]
    return pick(rng, others) if others else None


def _other_thing(kind: str, colour: str | None, rng: np.random.Generator) -> Thing:
    """A thing of another kind, of the same colour if it can have it."""
    other = KINDS[pick(rng, [name for name in KINDS if name != kind])]
    return Thing(other.name, colour if colour and colour in other.colours else other.default_colour)


def _other_background(background: str, rng: np.random.Generator) -> str:
    return pick(rng, [name for name in BACKGROUNDS if name != background])


def _wrong_cell(correct: set[int], scene: Scene, rng: np.random.Generator) -> int | None:
    """A free cell that is not correct; if there is none, an occupied one."""
    wrong = [cell for cell in range(9) if cell not in correct]
    free = [cell for cell in wrong if cell not in scene.cells]
    return pick(rng, free or wrong) if wrong else None


def _other_target(
    excluded: set[int], scene: Scene, rng: np.random.Generator, colour: str | None = None
) -> Target | None:
    """Another thing; with `colour`, one that can have it and does not have it yet."""
    others = [
        Target(thing.kind, thing.colour, cell)
        for cell, thing in sorted(scene.cells.items())
        if cell not in excluded
        and (colour is None or (colour in KINDS[thing.kind].colours and colour != thing.colour))
    ]
    return pick(rng, others) if others else None
