"""Compares an image with its instruction, and grades it exactly, from its pixels.

The four grades are those of VIEScore as the paper adapts it (section 3.2): edit success and
over-edit (10: nothing else changed) for semantics, naturalness and artifacts for quality.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from warehouse import EncodedImage

from ..roles import Score
from .perception import Perception, perceive_cached
from .prompt_parser import parse
from .scene import (
    Create,
    Edit,
    Move,
    Scene,
    SetBackground,
    Thing,
    carry_out,
    closest_to,
    edited_cell,
    simple_edits,
)
from .seeded_random import random_by
from .settings import hashed_name

_REVISION = 1  # raise when grades change
_MISPLACED_CREDIT = 0.3  # for the expected thing in a wrong cell
_FLAW_PENALTY = 4.0  # points for every crooked thing, every blemish
_SIDE_EFFECT_PENALTY = 3.0  # points for every other cell that changed
_BACKGROUND_PENALTY = 6.0  # points for a background that should not have changed


@dataclass(frozen=True)
class Comparison:
    """An instruction, interpreted in favour of an image, and what the image shows."""

    before: Scene | None  # the scene that was edited; None: from scratch
    expected: Scene  # the scene that fulfils the instruction and is closest to the image
    perception: Perception  # what the image shows
    exact_edits: tuple[Edit, ...]  # they lead from `before` to `expected`
    edit_count: int  # edits the instruction asks for; 0: it was not understood
    impossible: int  # how many of them are impossible

    @property
    def actual(self) -> Scene:
        return self.perception.scene

    @property
    def is_from_scratch(self) -> bool:
        return self.before is None or any(isinstance(edit, Create) for edit in self.exact_edits)

    @cached_property
    def relevant_cells(self) -> tuple[int, ...]:
        """Cells that the instruction is about."""
        cells = {edited_cell(edit) for edit in self.exact_edits}
        cells |= {edit.target.cell for edit in self.exact_edits if isinstance(edit, Move)}
        return tuple(sorted(cell for cell in cells if cell is not None))

    @property
    def sets_background(self) -> bool:
        return any(isinstance(edit, Create | SetBackground) for edit in self.exact_edits)

    @property
    def background_matches(self) -> bool:
        return self.actual.background == self.expected.background

    @cached_property
    def wrong_cells(self) -> tuple[int, ...]:
        expected, actual = self.expected.cells, self.actual.cells
        return tuple(cell for cell in range(9) if expected.get(cell) != actual.get(cell))

    @property
    def side_effects(self) -> tuple[int, ...]:
        """Other cells that are not as expected: they should not have changed."""
        return tuple(cell for cell in self.wrong_cells if cell not in self.relevant_cells)

    @property
    def is_fulfilled(self) -> bool:
        """Everything as requested, nothing else changed, nothing drawn badly."""
        is_possible = self.edit_count > 0 and not self.impossible
        has_flaws = self.perception.crooked or self.perception.blemished
        return is_possible and self.actual == self.expected and not has_flaws


def compare(before: EncodedImage | None, after: EncodedImage, instruction: str) -> Comparison:
    """Compare an image with its instruction; raises BadImageError. `before` None: from scratch."""
    scene = perceive_cached(before).scene if before else None
    perception = perceive_cached(after)
    command = parse(instruction)
    result = carry_out(command, scene, closest_to(perception.scene, command))
    edit_count = len(list(simple_edits(command)))
    return Comparison(
        scene, result.scene, perception, result.exact_edits, edit_count, result.impossible
    )


def model_name(noise: float) -> str:
    """Changes with everything that changes grades."""
    return hashed_name(f"sketch-scorer-{_REVISION}", noise)


def grade(
    before: EncodedImage | None, after: EncodedImage, instruction: str, noise: float = 0.0
) -> Score:
    """Grade `after`, with normal noise (deterministic) of a standard deviation on each grade."""
    comparison = compare(before, after, instruction)
    exact = Score(
        edit_success=_edit_success(comparison),
        over_edit=_over_edit(comparison),
        naturalness=_ten_minus(_FLAW_PENALTY * len(comparison.perception.crooked)),
        artifacts=_ten_minus(_FLAW_PENALTY * len(comparison.perception.blemished)),
    )
    if not noise:
        return exact
    rng = random_by("scorer", before and before.sha256, after.sha256, instruction)
    noisy = (value + rng.normal(0, noise) for value in vars(exact).values())
    return Score(*(round(min(10.0, max(0.0, value)), 2) for value in noisy))


def _edit_success(comparison: Comparison) -> float:
    if not comparison.edit_count:
        return 0.0
    credits = [*_credits(comparison), *[0.0] * comparison.impossible]
    return round(10 * sum(credits) / len(credits), 2) if credits else 10.0


def _credits(comparison: Comparison) -> Iterator[float]:
    expected, actual = comparison.expected, comparison.actual
    if comparison.sets_background:
        yield float(comparison.background_matches)
    misplaced = {actual.cells.get(cell) for cell in comparison.side_effects} - {None}
    for cell in comparison.relevant_cells:
        thing = expected.cells.get(cell)
        yield max(_credit(thing, actual.cells.get(cell)), _MISPLACED_CREDIT * (thing in misplaced))


def _credit(expected: Thing | None, actual: Thing | None) -> float:
    """How much of an expected thing is there: half for its kind alone, some for its colour."""
    if expected == actual:
        return 1.0
    if expected is None or actual is None:
        return 0.0
    if expected.kind == actual.kind:
        return 0.5
    return 0.25 if expected.colour == actual.colour else 0.1


def _over_edit(comparison: Comparison) -> float:
    penalty = _SIDE_EFFECT_PENALTY * len(comparison.side_effects)
    if not comparison.sets_background and not comparison.background_matches:
        penalty += _BACKGROUND_PENALTY
    return _ten_minus(penalty)


def _ten_minus(penalty: float) -> float:
    return max(0.0, 10.0 - penalty)
