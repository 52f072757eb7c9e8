"""How often the generator draws a prompt correctly, by wording.

`python -m tools.error_rates` prints the table of `docs/sketch.md`.
"""

from dataclasses import dataclass
from statistics import fmean

from inference.sketch_world.generator import draw
from inference.sketch_world.prompt_writer import KEEP_CLAUSE
from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene, make_cells
from inference.sketch_world.scorer import Comparison, compare
from inference.sketch_world.settings import SketchSettings
from warehouse import EncodedImage

_THINGS = [(6, "house", "red"), (2, "sun", "yellow"), (4, "cat", "orange"), (8, "tree", "green")]
_SCENE = Scene("meadow", make_cells(_THINGS))


@dataclass(frozen=True)
class PromptWording:
    """A prompt and the goal its images are compared with; `keep`: with a keep clause."""

    name: str
    wording: str
    goal: str
    keep: bool = False

    @property
    def prompt(self) -> str:
        return f"{self.wording} {KEEP_CLAUSE}" if self.keep else self.wording


@dataclass(frozen=True)
class ErrorRate:
    """Shares of images (0-1): as requested, in a wrong colour, misplaced, with damage."""

    success: float
    wrong_colour: float
    misplaced: float
    damage: float


_DOG = "Add a brown dog."
_DOG_BELOW = "Add a brown dog at the bottom center."
_DOG_BESIDE = "Add a brown dog next to the house."
_PAINT = "Paint the house blue."
_THREE_THINGS = "Draw a meadow with a house, a sun and a cat."
WORDINGS = (
    PromptWording("explicit", _DOG_BELOW, _DOG_BELOW, keep=True),
    PromptWording("colour implied", "Add a dog at the bottom center.", _DOG_BELOW, keep=True),
    PromptWording("relative place", _DOG_BESIDE, _DOG_BESIDE, keep=True),
    PromptWording("no place", _DOG, _DOG, keep=True),
    PromptWording("no keep clause", _DOG_BELOW, _DOG_BELOW),
    PromptWording("vague", "Add a dog.", _DOG),
    PromptWording(
        "three explicit edits",
        "Add a brown dog at the bottom center, remove the orange cat in the center and paint the "
        "red house at the bottom left blue.",
        "Add a brown dog at the bottom center, remove the cat and paint the house blue.",
        keep=True,
    ),
    PromptWording(
        "explicit recolouring", "Paint the red house at the bottom left blue.", _PAINT, keep=True
    ),
    PromptWording("vague recolouring", _PAINT, _PAINT),
    PromptWording(
        "explicit picture of three things",
        "Draw a meadow with a red house at the bottom left, a yellow sun at the top right and an "
        "orange cat in the center.",
        _THREE_THINGS,
    ),
    PromptWording("vague picture of three things", _THREE_THINGS, _THREE_THINGS),
)


def measure(wording: PromptWording, samples: int, settings: SketchSettings) -> ErrorRate:
    """Draw a prompt with `samples` seeds and compare every image with its goal."""
    from_scratch = wording.goal == _THREE_THINGS
    before = None if from_scratch else EncodedImage.of(render(_SCENE, settings.picture_size))
    inputs = [before] if before else []
    images = (draw(wording.prompt, inputs, seed, settings) for seed in range(samples))
    comparisons = [compare(before, image, wording.goal) for image in images]
    return ErrorRate(
        success=fmean(comparison.is_fulfilled for comparison in comparisons),
        wrong_colour=fmean(map(_has_wrong_colour, comparisons)),
        misplaced=fmean(map(_has_misplaced, comparisons)),
        damage=fmean(bool(comparison.side_effects) for comparison in comparisons),
    )


def _print_table() -> None:
    print("| wording | prompt | as requested | wrong colour | misplaced | something else changed |")
    print("|---|---|---|---|---|---|")
    for wording in WORDINGS:
        rates = vars(measure(wording, 1000, SketchSettings()))
        shares = [f"{share:.1%}" for share in rates.values()]
        print(f"| {wording.name} | {wording.prompt} | {' | '.join(shares)} |")


def _failures(comparison: Comparison) -> list[int]:
    """Cells that the prompt is about and that are not as expected."""
    return [cell for cell in comparison.wrong_cells if cell in comparison.relevant_cells]


def _has_wrong_colour(comparison: Comparison) -> bool:
    """An expected kind of thing is in its cell, in another colour."""
    expected, actual = comparison.expected.cells, comparison.actual.cells
    pairs = [(expected.get(cell), actual.get(cell)) for cell in _failures(comparison)]
    return any(a and b and a.kind == b.kind for a, b in pairs)


def _has_misplaced(comparison: Comparison) -> bool:
    """An expected thing is in another cell."""
    actual = comparison.actual.cells
    expected = [comparison.expected.cells.get(cell) for cell in _failures(comparison)]
    return any(thing and actual.get(cell) == thing for thing in expected for cell in range(9))


if __name__ == "__main__":
    _print_table()
