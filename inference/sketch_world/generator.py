"""Draws a prompt on the last image, with mistakes.

How likely each mistake is depends on the wording (`settings.MistakeRates`, measured in
`docs/sketch.md`), so that a better prompt really helps.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from warehouse import EncodedImage

from .error_model import (
    add_collateral_damage,
    colour_rate,
    place_rate,
    wrong_colour,
    wrong_kind,
    wrong_place,
)
from .perception import perceive_cached
from .prompt_parser import parse
from .renderer import Flaws, render
from .scene import Add, Command, Create, Edit, Move, Recolour, Remove, Replace, Scene
from .scene_edits import apply_edit, interpretations, simple_edits
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
    """The scene after the command, perhaps with mistakes."""
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
    if bernoulli(rng, colour_rate(edit, rates)):
        exact = wrong_colour(exact, rng) or exact
    if bernoulli(rng, place_rate(edit, rates)):
        exact = wrong_place(exact, _correct_cells(options), scene, rng) or exact
    return apply_edit(exact, scene)


def _random_flaws(scene: Scene, rates: MistakeRates, rng: np.random.Generator) -> Flaws:
    """Crooked things and scribbles."""
    cells = sorted(scene.cells)
    has_crooked = bernoulli(rng, rates.crooked) and cells
    has_blemish = bernoulli(rng, rates.blemish)
    return Flaws(
        crooked=[pick(rng, cells)] if has_crooked else [],
        blemished=[int(rng.integers(9))] if has_blemish else [],
        seed=int(rng.integers(2**31)),
    )


def _correct_cells(options: Iterable[Edit]) -> set[int]:
    """The cells where the edit would be correct."""
    cells = set()
    for option in options:
        match option:
            case Add(place=place) | Move(place=place):
                cells.add(place.cell)
            case Remove(target) | Recolour(target) | Replace(target):
                cells.add(target.cell)
    return {cell for cell in cells if cell is not None}
