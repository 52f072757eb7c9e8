"""How often the generator gets it right, by wording: the table of `docs/sketch.md`.

`python -m inference.sketch_world.error_rates` prints it again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from warehouse import EncodedImage

from .comparison import Comparison, compare
from .generator import SketchGenerator
from .prompt_writer import KEEP_CLAUSE
from .renderer import render
from .scene import Scene, things
from .settings import SketchSettings

_ADD = "Add a brown dog"
_SCENE = Scene(
    "meadow",
    things([(6, "house", "red"), (2, "sun", "yellow"), (4, "cat", "orange"), (8, "tree", "green")]),
)


@dataclass(frozen=True)
class PromptWording:
    """A prompt and the goal it is judged by; `fresh`: drawn from scratch."""

    name: str
    prompt: str
    goal: str
    fresh: bool = False


@dataclass(frozen=True)
class ErrorRate:
    """Shares of pictures (0-1): as asked for, in a wrong colour, misplaced, with damage."""

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
        fresh=True,
    ),
    PromptWording(
        "vague picture of three things",
        "Draw a meadow with a house, a sun and a cat.",
        "Draw a meadow with a house, a sun and a cat.",
        fresh=True,
    ),
)


def measure(
    wording: PromptWording, samples: int, settings: SketchSettings | None = None
) -> ErrorRate:
    """Draw a prompt with `samples` seeds and compare every picture with its goal."""
    seen = list(_comparisons(wording, samples, settings or SketchSettings()))
    return ErrorRate(
        success=_share(comparison.fulfilled for comparison in seen),
        wrong_colour=_share(map(_wrong_colour, seen)),
        misplaced=_share(map(_misplaced, seen)),
        damage=_share(bool(comparison.disturbed) for comparison in seen),
    )


def table(samples: int = 1000) -> str:
    """All wordings measured, as a Markdown table."""
    lines = [
        "| wording | prompt | as asked for | wrong colour | misplaced | something else changed |",
        "|---|---|---|---|---|---|",
    ]
    for wording in WORDINGS:
        shares = [f"{share:.1%}" for share in vars(measure(wording, samples)).values()]
        lines.append(f"| {wording.name} | {wording.prompt} | {' | '.join(shares)} |")
    return "\n".join(lines)


def _comparisons(
    wording: PromptWording, samples: int, settings: SketchSettings
) -> Iterator[Comparison]:
    generator = SketchGenerator(settings)
    before = None if wording.fresh else EncodedImage.of(render(_SCENE, settings.picture_size))
    for seed in range(samples):
        after = generator.draw(wording.prompt, [before] if before else [], seed)
        yield compare(before, after, wording.goal)


def _wrong_colour(comparison: Comparison) -> bool:
    """The wanted kind of thing is where it belongs, in another colour."""
    wanted, seen = comparison.wanted.cells, comparison.seen.scene.cells
    pairs = [(wanted.get(cell), seen.get(cell)) for cell in comparison.missed]
    return any(a and b and a.kind == b.kind for a, b in pairs)


def _misplaced(comparison: Comparison) -> bool:
    """A wanted thing is in a cell where it does not belong."""
    seen = comparison.seen.scene.cells
    wanted = [comparison.wanted.cells.get(cell) for cell in comparison.missed]
    return any(thing and seen.get(cell) == thing for thing in wanted for cell in range(9))


def _share(hits: Iterator[bool]) -> float:
    counted = list(hits)
    return sum(counted) / len(counted)


if __name__ == "__main__":
    print(table())
