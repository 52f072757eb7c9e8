"""Grades an image exactly, from its pixels.

The four grades are those of VIEScore as the paper adapts it (section 3.2): edit success and
over-edit (10: nothing else changed) for semantics, naturalness and artifacts for quality.
"""

from collections.abc import Iterator

from warehouse import EncodedImage

from ..roles import Score
from .comparison import Comparison, compare
from .scene import Thing
from .seeded_random import random_by
from .settings import hashed_name

_REVISION = 1  # raise when grades change
_MISPLACED_CREDIT = 0.3  # for the expected thing in a wrong cell
_FLAW_PENALTY = 4.0  # points for every crooked thing, every blemish
_SIDE_EFFECT_PENALTY = 3.0  # points for every other cell that changed
_BACKGROUND_PENALTY = 6.0  # points for a background that should not have changed


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
