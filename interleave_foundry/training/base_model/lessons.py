"""What the base model is taught: captions, and what a sentence would make of a picture.

A caption has no instruction, so there is nothing to copy from: what it says must have been seen.

    one picture       -> what is in every taken cell
    two pictures      -> what was there and what is there now
    picture, sentence -> what would be there; the picture after it is not shown
"""

from collections.abc import Mapping
from dataclasses import dataclass

from PIL import Image

from ...inference.sketch.chance import random_by
from ...inference.sketch.kinds import PLACES
from ...inference.sketch.renderer import Flaws, render
from ...inference.sketch.scene import Scene, Thing
from ...inference.sketch.sentences import phrase_noun
from .scenes import Stage

SIDE = 96
_DETAILED = 0.7  # share of pictures that are drawn large and shrunk, as those of the lake are


@dataclass(frozen=True)
class Lesson:
    """Pictures and words of a user's turn, and the answer to learn."""

    pictures: tuple[Image.Image, ...]
    question: str
    answer: str


def lesson(seed: int, captions: float) -> Lesson:
    """A lesson by seed; `captions`: share of captions of one picture."""
    stage, luck = Stage(seed), float(random_by("lesson", seed).random())
    if luck < captions:
        return Lesson((_after(stage, seed),), "", caption(stage.after, stage.flaws))
    if luck < captions + (1 - captions) / 2:
        pictures = (_before(stage, seed), _after(stage, seed))
        return Lesson(pictures, "", comparison(stage.before, stage.after, stage.flaws))
    return Lesson((_before(stage, seed),), stage.goal, expectation(stage))


def written(stage: Stage) -> tuple[str, ...]:
    """Everything that lessons say about a stage."""
    return (
        caption(stage.after, stage.flaws),
        comparison(stage.before, stage.after, stage.flaws),
        expectation(stage),
    )


def caption(scene: Scene, flaws: Flaws) -> str:
    """What is in a picture, cell by cell."""
    things = (
        f"{_place(cell)} see {_name(scene.cells.get(cell))}{_flaw(cell, flaws)}"
        for cell in _taken(scene.cells, flaws)
    )
    return _text([f"Background: see {scene.background}", *things])


def comparison(before: Scene | None, after: Scene, flaws: Flaws) -> str:
    """What is in two pictures, cell by cell."""
    earlier = before.cells if before else {}
    background = before.background if before else "nothing"
    lines = [f"Background: was {background}, see {after.background}"]
    for cell in _taken({**earlier, **after.cells}, flaws):
        was, now = _name(earlier.get(cell)), _name(after.cells.get(cell))
        lines.append(f"{_place(cell)} was {was}, see {now}{_flaw(cell, flaws)}")
    return _text(lines)


def expectation(stage: Stage) -> str:
    """What a sentence makes of a picture, cell by cell."""
    earlier, wanted = stage.before.cells if stage.before else {}, stage.wanted
    things = (
        f"{_place(cell)} want {_name(wanted.cells.get(cell))}"
        for cell in _taken({**earlier, **wanted.cells}, Flaws())
    )
    return f"Asked for: {stage.goal}\n{_text([f'Background: want {wanted.background}', *things])}"


def _text(lines: list[str]) -> str:
    return "\n".join(f"{line}." for line in lines)


def _taken(cells: Mapping[int, Thing], flaws: Flaws) -> list[int]:
    return sorted({*cells, *flaws.crooked, *flaws.blemished})


def _place(cell: int) -> str:
    return f"{PLACES[cell].capitalize()}:"


def _name(thing: Thing | None) -> str:
    return phrase_noun(thing.kind, thing.colour) if thing else "nothing"


def _flaw(cell: int, flaws: Flaws) -> str:
    if cell in flaws.crooked:
        return ", crooked"
    return ", scribbled" if cell in flaws.blemished else ""


def _before(stage: Stage, seed: int) -> Image.Image:
    if stage.before is None:
        return Image.new("RGB", (SIDE, SIDE), "white")
    return picture(stage.before, None, seed)


def _after(stage: Stage, seed: int) -> Image.Image:
    return picture(stage.after, stage.flaws, seed)


def picture(scene: Scene, flaws: Flaws | None, seed: int) -> Image.Image:
    """A scene as agents get to see it: 96 x 96 pixels."""
    if float(random_by("detail", seed).random()) < _DETAILED:
        return render(scene, 2 * SIDE, flaws).resize((SIDE, SIDE))
    return render(scene, SIDE, flaws)
