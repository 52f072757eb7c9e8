"""Random edits of the sketch world: a scene, edits in words, and the scene after them.

Nothing comes from the prompt bank: objects, colours, places and edits are random, so that
pretraining has seen no story.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from inference.sketch_world import generator
from inference.sketch_world.object_catalog import BACKGROUNDS, KINDS
from inference.sketch_world.prompt_writer import PromptStyle, creation, write_prompt
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
    Thing,
    carry_out,
    edited_cell,
)
from inference.sketch_world.seeded_random import KeyedRandom, bernoulli, pick, random_by

_MAX_THINGS = 6
_EDIT_COUNTS = (1, 1, 2, 2, 3)
# Rates of samples
_FROM_SCRATCH = 0.25
_BLANK_PAIR = 0.12
_MISTAKE = 0.5
_SURPRISE = 0.6
_FLAW = 0.25
# Rates of cells
_PAIR_CHANGE = 0.25
_SURPRISE_CHANGE = 0.5
_NEW_THING = 0.06


class EditSample:
    """A scene, the requested scene and the actual result of an edit, by `seed`.

    With `surprises`, the result mostly differs from the request, in many cells.
    """

    def __init__(self, seed: int, surprises: bool = False) -> None:
        rng, self._seed = random_by("stage", seed), seed
        self.before = None if bernoulli(rng, _FROM_SCRATCH) else _scene(rng, 1)
        self._edits = _edits(self.before, rng)
        self.target = _carry_out_all(self._edits, self.before or Scene())
        if surprises and bernoulli(rng, _SURPRISE):
            self.after = _change(self.target, rng, _SURPRISE_CHANGE)
        else:
            self.after = self._edit_result(rng)
        self.flaws = _flaws(self.after, rng)

    @cached_property
    def goal(self) -> str:
        """The edits in words: an unambiguous prompt."""
        keyed_random = KeyedRandom(f"stage {self._seed}")
        style = PromptStyle(
            places=True,
            colours=keyed_random.bernoulli(0.6, "colours"),
            keep=self.before is not None and keyed_random.bernoulli(0.35, "keep"),
            relations=keyed_random.bernoulli(0.3, "relations"),
        )
        return write_prompt(self._edits, self.before, style, keyed_random)

    def _edit_result(self, rng: np.random.Generator) -> Scene:
        if not bernoulli(rng, _MISTAKE):
            return self.target
        if self.before and bernoulli(rng, 0.4):
            return generator.add_collateral_damage(self.before, self.target, rng)
        return _with_a_mistake(self._edits, self.before or Scene(), rng)


class EditPair:
    """Two scenes, of which the second changes some objects of the first; by `seed`."""

    def __init__(self, seed: int) -> None:
        rng = random_by("pair", seed)
        self.before = None if bernoulli(rng, _BLANK_PAIR) else _scene(rng, 1)
        self.after = _change(self.before, rng, _PAIR_CHANGE) if self.before else _scene(rng, 0)
        self.flaws = _flaws(self.after, rng)


def _change(scene: Scene, rng: np.random.Generator, share: float) -> Scene:
    """The scene with a share of its objects, free cells or its background changed."""
    cells = {
        cell: altered_thing(thing, rng) if bernoulli(rng, share) else thing
        for cell, thing in scene.cells.items()
    }
    new = {cell: random_thing(rng) for cell in scene.free_cells() if bernoulli(rng, _NEW_THING)}
    background = pick(rng, BACKGROUNDS) if bernoulli(rng, share / 2) else scene.background
    present = {cell: thing for cell, thing in cells.items() if thing is not None}
    return Scene(background, present | new)


def altered_thing(thing: Thing | None, rng: np.random.Generator) -> Thing | None:
    """Nothing, or an object that may share the kind or the colour (rarely both)."""
    if thing is None:
        return random_thing(rng)
    kind, others = KINDS[thing.kind], list(KINDS.values())
    recoloured = Thing(kind.name, pick(rng, kind.colours))
    similar = pick(rng, [other for other in others if thing.colour in other.colours])
    same_colour = Thing(similar.name, thing.colour)
    return pick(rng, [None, recoloured, same_colour, random_thing(rng)])


def _carry_out_all(edits: Sequence[Edit], before: Scene) -> Scene:
    return carry_out(Command(tuple(edits)), before).scene


def _with_a_mistake(edits: Sequence[Edit], before: Scene, rng: np.random.Generator) -> Scene:
    """The scene after edits of which one was wrong or not done."""
    number = int(rng.integers(len(edits)))
    scene = _carry_out_all(edits[:number], before)
    return _carry_out_all(edits[number + 1 :], _wrong_edit(edits[number], scene, rng))


def _scene(rng: np.random.Generator, fewest: int) -> Scene:
    count = int(rng.integers(fewest, _MAX_THINGS + 1))
    cells = rng.permutation(9)[:count]
    return Scene(pick(rng, BACKGROUNDS), {int(cell): random_thing(rng) for cell in cells})


def random_thing(rng: np.random.Generator) -> Thing:
    """A random object, in its usual colour in at least 40 % of cases."""
    kind = KINDS[pick(rng, list(KINDS))]
    usual = bernoulli(rng, 0.4)
    return Thing(kind.name, kind.default_colour if usual else pick(rng, kind.colours))


def _edits(before: Scene | None, rng: np.random.Generator) -> list[Edit]:
    """Exact edits, each of which changes something."""
    if before is None:
        scene = _scene(rng, 0)
        return [creation(Scene(scene.background, dict(list(scene.cells.items())[:4])))]
    edits: list[Edit] = []
    for _ in range(pick(rng, _EDIT_COUNTS)):
        edits.append(_edit(before, rng))
        before = _carry_out_all(edits[-1:], before)
    return edits


def _edit(scene: Scene, rng: np.random.Generator) -> Edit:
    kinds = (Add, Add, Add, Move, Move, Recolour, Replace, Remove, SetBackground)
    kind = pick(rng, kinds if scene.cells else (Add, SetBackground))
    if kind is SetBackground:
        return SetBackground(pick(rng, [name for name in BACKGROUNDS if name != scene.background]))
    if kind is Add:
        return _addition(scene, rng)
    target = pick(rng, scene.exact_targets())
    if kind is Move:
        return Move(target, GridPlace(pick(rng, scene.free_cells())))
    if kind is Recolour:
        others = [c for c in KINDS[str(target.kind)].colours if c != target.colour]
        return Recolour(target, pick(rng, others)) if others else _addition(scene, rng)
    if kind is Replace:
        thing = random_thing(rng)
        is_other = thing.kind != target.kind
        return Replace(target, thing.kind, thing.colour) if is_other else _addition(scene, rng)
    return Remove(target)


def _addition(scene: Scene, rng: np.random.Generator) -> Edit:
    thing = random_thing(rng)
    return Add(thing.kind, thing.colour, GridPlace(pick(rng, scene.free_cells())))


def _wrong_edit(edit: Edit, before: Scene, rng: np.random.Generator) -> Scene:
    """The scene after the edit with one mistake; without the edit where none is possible."""
    if isinstance(edit, Create):
        return _wrong_creation(edit, rng)
    mistakes = (
        generator.wrong_kind(edit, rng),
        generator.wrong_colour(edit, rng),
        generator.wrong_place(edit, {edited_cell(edit)}, before, rng),
    )
    possible = [mistake for mistake in mistakes if mistake is not None]
    return _carry_out_all([pick(rng, possible)], before) if possible else before


def _wrong_creation(edit: Create, rng: np.random.Generator) -> Scene:
    scene = _carry_out_all([edit], Scene())
    if not scene.cells or bernoulli(rng, 0.2):
        return Scene(pick(rng, BACKGROUNDS), scene.cells)
    cell = pick(rng, sorted(scene.cells))
    return scene.with_cell(cell, None if bernoulli(rng, 0.3) else random_thing(rng))


def _flaws(scene: Scene, rng: np.random.Generator) -> Flaws:
    seed = int(rng.integers(2**31))
    if not bernoulli(rng, _FLAW):
        return Flaws(seed=seed)
    cells = sorted(scene.cells)
    if cells and bernoulli(rng, 0.5):
        return Flaws(crooked=[pick(rng, cells)], seed=seed)
    return Flaws(blemished=[int(rng.integers(9))], seed=seed)
