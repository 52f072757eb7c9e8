"""Random stages of the sketch world: scenes, edits in words, and scenes after them.

Nothing here comes from the prompt bank: things, colours, places and edits are drawn by chance, so
the lessons know no story.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from inference.sketch_world.error_model import collateral, wrong_colour, wrong_kind, wrong_place
from inference.sketch_world.object_catalog import BACKGROUNDS, KINDS
from inference.sketch_world.prompt_style import PromptStyle, word
from inference.sketch_world.prompt_writer import creation
from inference.sketch_world.renderer import Flaws
from inference.sketch_world.scene import (
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
)
from inference.sketch_world.scene_edits import carry_out
from inference.sketch_world.seeded_random import KeyedRandom, happens, pick, random_by

_MOST_THINGS = 6
_FROM_SCRATCH = 0.25
_EDITS = (1, 1, 2, 2, 3)
_MISTAKE = 0.5
_FLAW = 0.25
_BLANK = 0.12
_CHANGING = 0.25
_SURPRISE = 0.6
_SURPRISING = 0.5
_APPEARING = 0.06


class EditSample:
    """What there was, what was asked for and what came of it; everything by `seed`.

    Args:
        surprises: what came of it mostly differs from what was asked for, in many places.
    """

    def __init__(self, seed: int, surprises: bool = False) -> None:
        self._rng = random_by("stage", seed)
        self._chance = KeyedRandom(f"stage {seed}")
        self.before = None if happens(self._rng, _FROM_SCRATCH) else _scene(self._rng, 1)
        self._edits = _edits(self.before, self._rng)
        self.wanted = _carried_out(self._edits, self.before or Scene())
        surprised = surprises and happens(self._rng, _SURPRISE)
        changed = _changed(self.wanted, self._rng, _SURPRISING) if surprised else None
        self.after = changed or self._outcome()
        self.flaws = _flaws(self.after, self._rng)

    @cached_property
    def goal(self) -> str:
        """The edits in words: a prompt that can be read in one way only."""
        tell = self._chance.happens
        manner = PromptStyle(
            places=True,
            colours=tell(0.6, "colours"),
            keep=self.before is not None and tell(0.35, "keep"),
            relations=tell(0.3, "relations"),
        )
        return word(self._edits, self.before, manner, self._chance, settled=True)

    def _outcome(self) -> Scene:
        """The wanted scene, or one with a mistake."""
        if not happens(self._rng, _MISTAKE):
            return self.wanted
        before = self.before or Scene()
        if self.before and happens(self._rng, 0.4):
            return collateral(before, self.wanted, self._rng)
        return _with_a_mistake(self._edits, before, self._rng)


class EditPair:
    """Two pictures of one place, between which several things may have changed; by `seed`."""

    def __init__(self, seed: int) -> None:
        rng = random_by("pair", seed)
        self.before = None if happens(rng, _BLANK) else _scene(rng, 1)
        self.after = _changed(self.before, rng, _CHANGING) if self.before else _scene(rng, 0)
        self.flaws = _flaws(self.after, rng)


def _changed(scene: Scene, rng: np.random.Generator, share: float) -> Scene:
    """The scene with a share of its things, a free cell or its background changed by chance."""
    cells = {
        cell: altered(thing, rng) if happens(rng, share) else thing
        for cell, thing in scene.cells.items()
    }
    new = {cell: anything(rng) for cell in scene.free_cells() if happens(rng, _APPEARING)}
    elsewhere = happens(rng, share / 2)
    background = pick(rng, BACKGROUNDS) if elsewhere else scene.background
    kept = {cell: thing for cell, thing in cells.items() if thing is not None}
    return Scene(background, kept | new)


def altered(thing: Thing | None, rng: np.random.Generator) -> Thing | None:
    """Nothing, or something else that may share its kind or its colour (by chance even both)."""
    if thing is None:
        return anything(rng)
    kind, others = KINDS[thing.kind], list(KINDS.values())
    recoloured = Thing(kind.name, pick(rng, kind.colours))
    alike = [other for other in others if thing.colour in other.colours]
    return pick(rng, [None, recoloured, Thing(pick(rng, alike).name, thing.colour), anything(rng)])


def _carried_out(edits: Sequence[Edit], before: Scene) -> Scene:
    """The scene after exact edits, one after the other."""
    return carry_out(Command(tuple(edits)), before, lambda _, options: options[0]).scene


def _with_a_mistake(edits: Sequence[Edit], before: Scene, rng: np.random.Generator) -> Scene:
    """The scene after edits of which one went wrong or was not done at all."""
    number = int(rng.integers(len(edits)))
    scene = _carried_out(edits[:number], before)
    return _carried_out(edits[number + 1 :], _spoilt(edits[number], scene, rng) or scene)


def _scene(rng: np.random.Generator, fewest: int) -> Scene:
    count = int(rng.integers(fewest, _MOST_THINGS + 1))
    cells = rng.permutation(9)[:count]
    return Scene(pick(rng, BACKGROUNDS), {int(cell): anything(rng) for cell in cells})


def anything(rng: np.random.Generator) -> Thing:
    """Anything the world can draw, rather often in its usual colour."""
    kind = KINDS[pick(rng, list(KINDS))]
    usual = happens(rng, 0.4)
    return Thing(kind.name, kind.colours[0] if usual else pick(rng, kind.colours))


def _edits(before: Scene | None, rng: np.random.Generator) -> list[Edit]:
    """Exact edits, each of which changes something."""
    if before is None:
        scene = _scene(rng, 0)
        return [creation(Scene(scene.background, dict(list(scene.cells.items())[:4])))]
    edits: list[Edit] = []
    for _ in range(pick(rng, _EDITS)):
        edits.append(_edit(before, rng))
        before = _carried_out(edits[-1:], before)
    return edits


def _edit(scene: Scene, rng: np.random.Generator) -> Edit:
    makers = (_add, _add, _add, _move, _move, _recolour, _replace, _remove, _set_background)
    possible = makers if scene.cells else (_add, _set_background)
    return pick(rng, possible)(scene, rng)


def _target(scene: Scene, rng: np.random.Generator) -> Target:
    cell = pick(rng, sorted(scene.cells))
    return Target(scene.cells[cell].kind, scene.cells[cell].colour, cell)


def _add(scene: Scene, rng: np.random.Generator) -> Edit:
    thing = anything(rng)
    return Add(thing.kind, thing.colour, GridPlace(cell=pick(rng, scene.free_cells())))


def _move(scene: Scene, rng: np.random.Generator) -> Edit:
    return Move(_target(scene, rng), GridPlace(cell=pick(rng, scene.free_cells())))


def _recolour(scene: Scene, rng: np.random.Generator) -> Edit:
    target = _target(scene, rng)
    others = [c for c in KINDS[str(target.kind)].colours if c != target.colour]
    return Recolour(target, pick(rng, others)) if others else _add(scene, rng)


def _replace(scene: Scene, rng: np.random.Generator) -> Edit:
    target, thing = _target(scene, rng), anything(rng)
    if thing.kind == target.kind:
        return _add(scene, rng)
    return Replace(target, thing.kind, thing.colour)


def _remove(scene: Scene, rng: np.random.Generator) -> Edit:
    return Remove(_target(scene, rng))


def _set_background(scene: Scene, rng: np.random.Generator) -> Edit:
    return SetBackground(pick(rng, [name for name in BACKGROUNDS if name != scene.background]))


def _spoilt(edit: Edit, before: Scene, rng: np.random.Generator) -> Scene | None:
    """The scene after the edit went wrong in one way; None: it was not done at all."""
    if isinstance(edit, Create):
        return _spoilt_creation(edit, rng)
    ways = (
        wrong_kind(edit, rng),
        wrong_colour(edit, rng),
        wrong_place(edit, _cells(edit), before, rng),
    )
    possible = [way for way in ways if way is not None]
    return _carried_out([pick(rng, possible)], before) if possible else None


def _spoilt_creation(edit: Create, rng: np.random.Generator) -> Scene:
    scene = _carried_out([edit], Scene())
    if not scene.cells or happens(rng, 0.2):
        return Scene(pick(rng, BACKGROUNDS), scene.cells)
    cell = pick(rng, sorted(scene.cells))
    if happens(rng, 0.3):
        return scene.with_cell(cell, None)
    return scene.with_cell(cell, anything(rng))


def _cells(edit: Edit) -> set[int]:
    """Where the edit would be right."""
    match edit:
        case Add(place=place) | Move(place=place):
            return {place.cell} if place.cell is not None else set()
        case Remove(target) | Recolour(target) | Replace(target):
            return {target.cell} if target.cell is not None else set()
        case _:
            return set()


def _flaws(scene: Scene, rng: np.random.Generator) -> Flaws:
    seed = int(rng.integers(2**31))
    if not happens(rng, _FLAW):
        return Flaws(seed=seed)
    cells = sorted(scene.cells)
    if cells and happens(rng, 0.5):
        return Flaws(crooked=[pick(rng, cells)], seed=seed)
    return Flaws(blemished=[int(rng.integers(9))], seed=seed)
