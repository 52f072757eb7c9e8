"""How often the generator draws a prompt correctly, by wording.

`python -m inference.sketch_world.error_rates` prints the table of `docs/sketch.md`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from warehouse import EncodedImage

from .comparison import Comparison, compare
from .generator import draw
from .prompt_writer import KEEP_CLAUSE
from .renderer import render
from .scene import Scene, make_cells
from .settings import SketchSettings

_ADD = "Add a brown dog"
_SCENE = Scene(
    "meadow",
    make_cells(
        [(6, "house", "red"), (2, "sun", "yellow"), (4, "cat", "orange"), (8, "tree", "green")]
    ),
)


@dataclass(frozen=True)
class PromptWording:
    """A prompt and the goal its images are compared with; `from_scratch`: without an image."""

    name: str
    prompt: str
    goal: str
    from_scratch: bool = False


@dataclass(frozen=True)
class ErrorRate:
    """Shares of images (0-1): as requested, in a wrong colour, misplaced, with damage."""

    success: float
    wrong_colour: float
    misplaced: float
    damage: float


WORDINGS = (
    PromptWording(
        "explicit", f"{_ADD} at the bottom center. {KEEP_CLAUSE}", f"{_ADD} at the bottom center."
    ),
    PromptWording(
        "colour implied",
        f"Add a dog at the bottom center. {KEEP_CLAUSE}",
        f"{_ADD} at the bottom center.",
    ),
    PromptWording(
        "relative place", f"{_ADD} next to the house. {KEEP_CLAUSE}", f"{_ADD} next to the house."
    ),
    PromptWording("no place", f"{_ADD}. {KEEP_CLAUSE}", f"{_ADD}."),
    PromptWording(
        "no keep clause", f"{_ADD} at the bottom center.", f"{_ADD} at the bottom center."
    ),
    PromptWording("vague", "Add a dog.", f"{_ADD}."),
    PromptWording(
        "three explicit edits",
        "Add a brown dog at the bottom center, remove the orange cat in the center and paint the "
        f"red house at the bottom left blue. {KEEP_CLAUSE}",
        "Add a brown dog at the bottom center, remove the cat and paint the house blue.",
    ),
    PromptWording(
        "explicit recolouring",
        f"Paint the red house at the bottom left blue. {KEEP_CLAUSE}",
        "Paint the house blue.",
    ),
    PromptWording("vague recolouring", "Paint the house blue.", "Paint the house blue."),
    PromptWording(
        "explicit picture of three things",
        "Draw a meadow with a red house at the bottom left, a yellow sun at the top right and an "
        "orange cat in the center.",
        "Draw a meadow with a house, a sun and a cat.",
        from_scratch=True,
    ),
    PromptWording(
        "vague picture of three things",
        "Draw a meadow with a house, a sun and a cat.",
        "Draw a meadow with a house, a sun and a cat.",
        from_scratch=True,
    ),
)


def measure(
    wording: PromptWording, samples: int, settings: SketchSettings | None = None
) -> ErrorRate:
    """Draw a prompt with `samples` seeds and compare every image with its goal."""
    comparisons = list(_comparisons(wording, samples, settings or SketchSettings()))
    return ErrorRate(
        success=_share(comparison.is_fulfilled for comparison in comparisons),
        wrong_colour=_share(map(_has_wrong_colour, comparisons)),
        misplaced=_share(map(_has_misplaced, comparisons)),
        damage=_share(bool(comparison.side_effects) for comparison in comparisons),
    )


def format_table(samples: int = 1000) -> str:
    """Measure all wordings; a Markdown table."""
    lines = [
        "| wording | prompt | as requested | wrong colour | misplaced | something else changed |",
        "|---|---|---|---|---|---|",
    ]
    for wording in WORDINGS:
        shares = [f"{share:.1%}" for share in vars(measure(wording, samples)).values()]
        lines.append(f"| {wording.name} | {wording.prompt} | {' | '.join(shares)} |")
    return "\n".join(lines)


def _comparisons(
    wording: PromptWording, samples: int, settings: SketchSettings
) -> Iterator[Comparison]:
    before = (
        None if wording.from_scratch else EncodedImage.of(render(_SCENE, settings.picture_size))
    )
    for seed in range(samples):
        after = draw(wording.prompt, [before] if before else [], seed, settings)
        yield compare(before, after, wording.goal)


def _has_wrong_colour(comparison: Comparison) -> bool:
    """An expected kind of thing is in its cell, in another colour."""
    expected, actual = comparison.expected.cells, comparison.actual.cells
    pairs = [(expected.get(cell), actual.get(cell)) for cell in comparison.failures]
    return any(a and b and a.kind == b.kind for a, b in pairs)


def _has_misplaced(comparison: Comparison) -> bool:
    """An expected thing is in another cell."""
    actual = comparison.actual.cells
    expected = [comparison.expected.cells.get(cell) for cell in comparison.failures]
    return any(thing and actual.get(cell) == thing for thing in expected for cell in range(9))


def _share(hits: Iterable[bool]) -> float:
    return float(np.mean(list(hits)))


if __name__ == "__main__":
    print(format_table())
