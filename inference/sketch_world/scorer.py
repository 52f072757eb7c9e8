"""The exact scorer of the sketch world: grades a picture from its pixels.

The four grades are those of VIEScore as the paper adapts it (section 3.2): edit success and
over-edit (10: nothing else changed) for semantics, naturalness and artifacts for quality.
"""

from collections.abc import Iterator

from warehouse import EncodedImage

from ..roles import Score
from .comparison import Comparison, compare
from .scene import Thing
from .seeded_random import random_by
from .settings import SketchSettings, model_name

_REVISION = 1  # raise when grades change
_ELSEWHERE = 0.3  # credit for the wanted thing in a wrong place
_FLAW = 4.0  # points off for every crooked thing, every blemish
_DISTURBED = 3.0  # points off for every cell that should have stayed as it was
_WRONG_BACKGROUND = 6.0  # points off for a background that should have stayed


class SketchScorer:
    """Plays the scorer; exact unless `scorer_noise` is set."""

    backend = "sketch"

    def __init__(self, settings: SketchSettings | None = None) -> None:
        self._noise = (settings or SketchSettings()).scorer_noise
        self.model = model_name(f"sketch-scorer-{_REVISION}", self._noise)

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        """Grade a picture against the plan's prompt of its step."""
        return self.grade(before, after, instruction)

    def grade(self, before: EncodedImage | None, after: EncodedImage, instruction: str) -> Score:
        """`score` without waiting: a few milliseconds of computation."""
        exact = graded(compare(before, after, instruction))
        if not self._noise:
            return exact
        rng = random_by("scorer", before and before.sha256, after.sha256, instruction)
        noisy = (grade + rng.normal(0, self._noise) for grade in vars(exact).values())
        return Score(*(round(min(10.0, max(0.0, grade)), 2) for grade in noisy))


def graded(comparison: Comparison) -> Score:
    """The grades of a comparison, without noise."""
    return Score(
        edit_success=_edit_success(comparison),
        over_edit=_over_edit(comparison),
        naturalness=_points_off(_FLAW * len(comparison.seen.crooked)),
        artifacts=_points_off(_FLAW * len(comparison.seen.blemished)),
    )


def _edit_success(comparison: Comparison) -> float:
    """Ten times the share of what was asked for that is there."""
    if not comparison.asked:
        return 0.0
    credits = [*_credits(comparison), *[0.0] * comparison.impossible]
    return round(10 * sum(credits) / len(credits), 2) if credits else 10.0


def _credits(comparison: Comparison) -> Iterator[float]:
    wanted, seen = comparison.wanted, comparison.seen.scene
    if comparison.background_asked:
        yield float(comparison.background_right)
    for cell in comparison.relevant:
        here = _credit(wanted.cells.get(cell), seen.cells.get(cell))
        yield max(here, _ELSEWHERE * _strayed(comparison, wanted.cells.get(cell)))


def _credit(wanted: Thing | None, seen: Thing | None) -> float:
    """How much of a wanted thing is there: half for its kind alone, some for its colour."""
    if wanted == seen:
        return 1.0
    if wanted is None or seen is None:
        return 0.0
    if wanted.kind == seen.kind:
        return 0.5
    return 0.25 if wanted.colour == seen.colour else 0.1


def _strayed(comparison: Comparison, wanted: Thing | None) -> bool:
    """Whether the wanted thing is somewhere where nobody wanted it."""
    seen = comparison.seen.scene
    return wanted is not None and any(seen.cells.get(c) == wanted for c in comparison.disturbed)


def _over_edit(comparison: Comparison) -> float:
    off = _DISTURBED * len(comparison.disturbed)
    if not comparison.background_asked and not comparison.background_right:
        off += _WRONG_BACKGROUND
    return _points_off(off)


def _points_off(points: float) -> float:
    return max(0.0, 10.0 - points)
