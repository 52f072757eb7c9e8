"""Draws a prompt on the last image, with mistakes.

How likely each mistake is depends on the wording (`settings.MistakeRates`, measured in
`docs/sketch.md`), so that a better prompt really helps.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from warehouse import EncodedImage

from .object_catalog import BACKGROUNDS, KINDS
from .perception import perceive_cached
from .prompt_parser import parse
from .renderer import Flaws, render
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
    apply_edit,
    edited_cell,
    interpretations,
    simple_edits,
)
from .seeded_random import bernoulli, pick, random_by
from .settings import MistakeRates, SketchSettings, hashed_name

_REVISION = 1  # raise when the generator's behaviour changes


def model_name(settings: SketchSettings) -> str:
    """Changes with everything that changes images."""
    name = f"sketch-generator-{_REVISION}"
    return hashed_name(name, settings.picture_size, settings.mistakes)


def draw(
    prompt: str, images: Sequence[EncodedImage], seed: int, settings: SketchSettings | None = None
) -> EncodedImage:
    """Edit the last of `images`; without images, draw from scratch. Deterministic."""
    settings = settings or SketchSettings()
    rng = random_by("generator", prompt, tuple(image.sha256 for image in images), seed)
    before = perceive_cached(images[-1]).scene if images else None
    command = parse(prompt)
    scene = _apply_command(command, before, settings.mistakes, rng)
    flaws = _random_flaws(scene, settings.mistakes, rng) if command.edits else None
    return EncodedImage.of(render(scene, settings.picture_size, flaws))


def _apply_command(
    command: Command, before: Scene | None, rates: MistakeRates, rng: np.random.Generator
) -> Scene:
    edits = list(simple_edits(command))
    scene = before or Scene()
    for edit in edits:
        scene = _apply_with_mistakes(edit, scene, len(edits), rates, rng)
    rate = rates.collateral.kept if command.keep else rates.collateral.unasked
    if before and edits and not isinstance(edits[0], Create) and bernoulli(rng, rate):
        scene = add_collateral_damage(before, scene, rng)
    return scene


def _apply_with_mistakes(
    edit: Edit, scene: Scene, edit_count: int, rates: MistakeRates, rng: np.random.Generator
) -> Scene:
    """The scene after one of `edit_count` edits, which may be omitted or go wrong."""
    options = interpretations(edit, scene)
    crowding = 1 + rates.crowding * (edit_count - 1)
    is_omitted = bernoulli(rng, rates.nothing * crowding)
    if not options or (is_omitted and not isinstance(edit, Create)):
        return scene
    exact = pick(rng, options)
    if bernoulli(rng, rates.kind * crowding):
        exact = wrong_kind(exact, rng) or exact
    if bernoulli(rng, _colour_rate(edit, rates)):
        exact = wrong_colour(exact, rng) or exact
    if bernoulli(rng, _place_rate(edit, rates)):
        exact = wrong_place(exact, set(map(edited_cell, options)), scene, rng) or exact
    return apply_edit(exact, scene)


def _random_flaws(scene: Scene, rates: MistakeRates, rng: np.random.Generator) -> Flaws:
    cells = sorted(scene.cells)
    has_crooked = bernoulli(rng, rates.crooked) and cells
    has_blemish = bernoulli(rng, rates.blemish)
    return Flaws(
        crooked=[pick(rng, cells)] if has_crooked else [],
        blemished=[int(rng.integers(9))] if has_blemish else [],
        seed=int(rng.integers(2**31)),
    )


def _place_rate(edit: Edit, rates: MistakeRates) -> float:
    """How likely the place goes wrong, by how exactly the edit names the place or target."""
    if isinstance(edit, Create | SetBackground):
        return 0.0
    if edited_cell(edit) is not None:
        return rates.place.exact
    detail = edit.place.anchor if isinstance(edit, Add | Move) else edit.target.colour
    return rates.place.open if detail is None else rates.place.relative


def _colour_rate(edit: Edit, rates: MistakeRates) -> float:
    """How likely the colour goes wrong, by whether the edit names it."""
    if not isinstance(edit, Add | Replace | Recolour):
        return 0.0
    return rates.colour.implied if edit.colour is None else rates.colour.named


# Mistakes: a wrong variant of an exact edit (see `interpretations`), None where that is impossible.


def wrong_colour(exact: Edit, rng: np.random.Generator) -> Edit | None:
    match exact:
        case Add(kind, colour) | Replace(_, kind, colour):
            other = _other_colour(kind, {colour}, rng)
        case Recolour(Target(str(kind), old), colour):
            other = _other_colour(kind, {colour, old}, rng)
        case _:
            return None
    return replace(exact, colour=other) if other else None


def wrong_kind(exact: Edit, rng: np.random.Generator) -> Edit | None:
    match exact:
        case Add(kind, colour) | Replace(_, kind, colour):
            return replace(exact, **vars(_other_thing(kind, colour, rng)))
        case Create(background) | SetBackground(background):
            return replace(exact, background=_other_background(background, rng))
    return None


def wrong_place(
    exact: Edit, correct_cells: set[int | None], scene: Scene, rng: np.random.Generator
) -> Edit | None:
    """The edit in none of the cells that would fulfil it, or done to another thing."""
    match exact:
        case Add():
            cell = _wrong_cell(correct_cells, scene, rng)
        case Move(target):
            cell = _wrong_cell(correct_cells | {target.cell}, scene, rng)
        case Remove() | Replace() | Recolour():
            colour = exact.colour if isinstance(exact, Recolour) else None
            other = _other_target(correct_cells, scene, rng, colour)
            return replace(exact, target=other) if other else None
        case _:
            return None
    return None if cell is None else replace(exact, place=GridPlace(cell))


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


def _wrong_cell(correct: set[int | None], scene: Scene, rng: np.random.Generator) -> int | None:
    """A free cell that is not correct; if there is none, an occupied one."""
    wrong = [cell for cell in range(9) if cell not in correct]
    free = [cell for cell in wrong if cell not in scene.cells]
    return pick(rng, free or wrong) if wrong else None


def _other_target(
    excluded: set[int | None], scene: Scene, rng: np.random.Generator, colour: str | None = None
) -> Target | None:
    """Another thing; with `colour`, one that can have it and does not have it yet."""
    others = [target for target in scene.exact_targets() if target.cell not in excluded]
    if colour:
        others = [t for t in others if t.colour != colour and colour in KINDS[str(t.kind)].colours]
    return pick(rng, others) if others else None
