"""What the base model is taught: captions, and what a sentence would make of a picture.

A caption has no instruction, so there is nothing to copy from: what it says must have been seen.

    one picture       -> what is in every taken cell
    two pictures      -> what was there, what is there now, and whether that is the same
    picture, sentence -> what would be there; the picture after it is not shown
    both pictures, sentence -> what would be there, beside what is there

Readings have no pictures: things are named among words that mean nothing to them, and listed. In
the end there are many of a thing as well, and words like `a picture book`, which names no thing.

Drills have none either: phrases are put beside each other, and only whether they are alike is
learned. A model that sees both sides right can still not compare them: a quarter of a lesson's
cells differ, a few words in a hundred, and it gets by without.

Surprises come last. Where the picture after is nearly always as it was asked for, it tells what
was asked for, and a model reads that off instead of the sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from inference.sketch_world.object_catalog import BACKGROUNDS, KINDS, PLACES
from inference.sketch_world.prompt_writer import phrase_noun, with_article
from inference.sketch_world.renderer import Flaws, render
from inference.sketch_world.scene import Scene, Thing
from inference.sketch_world.seeded_random import happens, pick, random_by

from .scenes import EditPair, EditSample, altered, anything

T = TypeVar("T")
SIDE = 96
FLAWS = ("crooked", "scribbled")
# How two phrases are put beside each other, and what is said of them: alike, or not.
_WANTED = ("want", "see", "right", "wrong")
_EARLIER = ("was", "see", "same", "changed")
MARKS = frozenset({*_WANTED[2:], *_EARLIER[2:]})
# Of the lessons that are no captions: comparisons; of the rest: expectations; the others inspect.
_PAIRS = 0.2
_EXPECTATIONS = 0.4
_NOTHING = 0.1  # share of a drill's places that are empty
_BINDING = ("picture", "story", "school", "comic", "poster", "lesson", "birthday", "guide")
_DETAILED = 0.7  # share of pictures that are drawn large and shrunk, as those of the lake are


@dataclass(frozen=True)
class Lesson:
    """Pictures and words of a user's turn, and the answer to learn.

    Attributes:
        marks_only: only the marks of the answer are learned, since all else is chance.
    """

    pictures: tuple[Image.Image, ...]
    question: str
    answer: str
    marks_only: bool = False


def lesson(seed: int, captions: float, surprises: bool = False) -> Lesson:
    """A lesson by seed; `captions`: share of captions of one picture; `surprises`: of stages."""
    rng = random_by("lesson", seed)
    if happens(rng, captions):
        stage = EditSample(seed)
        seen = picture(stage.after, stage.flaws, seed)
        return Lesson((seen,), "", caption(stage.after, stage.flaws))
    if happens(rng, _PAIRS):
        pair = EditPair(seed)
        pictures = (_earlier(pair.before, seed), picture(pair.after, pair.flaws, seed))
        return Lesson(pictures, "", comparison(pair.before, pair.after, pair.flaws))
    stage = EditSample(seed, surprises)
    earlier = _earlier(stage.before, seed)
    if happens(rng, _EXPECTATIONS):
        return Lesson((earlier,), stage.goal, expectation(stage))
    return Lesson((earlier, picture(stage.after, stage.flaws, seed)), stage.goal, inspection(stage))


def drill(seed: int) -> Lesson:
    """Phrases beside each other, about half of them alike; by seed."""
    rng = random_by("drill", seed)
    words = pick(rng, [_WANTED, _EARLIER])
    ground = pick(rng, BACKGROUNDS)
    lines = [_beside("Background:", ground, _or(ground, pick(rng, BACKGROUNDS), rng), words)]
    for cell in sorted(rng.permutation(len(PLACES))[: int(rng.integers(4, len(PLACES)))]):
        thing = None if happens(rng, _NOTHING) else anything(rng)
        seen = _or(thing, altered(thing, rng), rng)
        lines.append(_beside(_place(int(cell)), _name(thing), _name(seen), words))
    return Lesson((), "", _text(lines), marks_only=True)


def reading(seed: int, varied: bool = False) -> Lesson:
    """Words in any order and things among them: which things? By seed.

    So that a request can be asked in words that nobody was taught with.

    Args:
        varied: things in the plural as well, and beside them what only sounds like a thing.
    """
    rng = random_by("reading", seed)
    words = [pick(rng, request_words()) for _ in range(int(rng.integers(4, 16)))]
    things = [anything(rng) for _ in range(int(rng.integers(1, 4)))]
    said = [_said(thing, rng) if varied else with_article(_name(thing)) for thing in things]
    asides = [_aside(rng) for _ in range(int(rng.integers(0, 3)))] if varied else []
    _strew(said, words, rng)
    _strew(asides, words, rng)
    return Lesson((), " ".join(words), f"Named: {', '.join(_name(thing) for thing in things)}.")


def _said(thing: Thing, rng: np.random.Generator) -> str:
    """A thing as one of the ways in which a request has it."""
    many = f"{thing.colour} {KINDS[thing.kind].plural}"
    return pick(rng, [with_article(_name(thing)), f"the {_name(thing)}", many])


def _aside(rng: np.random.Generator) -> str:
    """No thing, for all the name in it: `a picture book`."""
    return with_article(f"{pick(rng, _BINDING)} {pick(rng, list(KINDS))}")


def _strew(phrases: list[str], words: list[str], rng: np.random.Generator) -> None:
    """Put phrases anywhere between words, in their order."""
    places = sorted(int(place) for place in rng.integers(len(words) + 1, size=len(phrases)))
    for place, phrase in reversed(list(zip(places, phrases, strict=True))):
        words.insert(place, phrase)


@cache
def request_words() -> tuple[str, ...]:
    """Words in which people ask, in the order of the alphabet."""
    return tuple((Path(__file__).parent / "requests.txt").read_text("utf-8").split())


def _beside(
    place: str, one: str, other: str, words: tuple[str, str, str, str], flaw: str | None = None
) -> str:
    """Two phrases and their mark; a flaw is what there is to say of a thing that is right."""
    first, second, alike, unlike = words
    mark = (flaw or alike) if one == other else unlike
    return f"{place} {first} {one}, {second} {other}, {mark}"


def _or(one: T, other: T, rng: np.random.Generator) -> T:
    return one if happens(rng, 0.5) else other


def written(seed: int) -> tuple[str, ...]:
    """What lessons of every sort say."""
    stage, pair = EditSample(seed), EditPair(seed)
    return (
        caption(stage.after, stage.flaws),
        comparison(pair.before, pair.after, pair.flaws),
        expectation(stage),
    )


def caption(scene: Scene, flaws: Flaws) -> str:
    """What is in a picture, cell by cell."""
    lines = [f"Background: see {scene.background}"]
    for cell in _taken(scene.cells, flaws):
        flaw = _flaw(cell, flaws)
        line = f"{_place(cell)} see {_name(scene.cells.get(cell))}"
        lines.append(f"{line}, {flaw}" if flaw else line)
    return _text(lines)


def comparison(before: Scene | None, after: Scene, flaws: Flaws) -> str:
    """What is in two pictures, cell by cell, and whether it is the same."""
    earlier = before.cells if before else {}
    background = before.background if before else "nothing"
    return _side_by_side(Scene(background, earlier), after, flaws, _EARLIER)


def expectation(stage: EditSample) -> str:
    """What a sentence makes of a picture, cell by cell."""
    earlier, wanted = stage.before.cells if stage.before else {}, stage.wanted
    things = (
        f"{_place(cell)} want {_name(wanted.cells.get(cell))}"
        for cell in _taken({**earlier, **wanted.cells}, Flaws())
    )
    return f"Asked for: {stage.goal}\n{_text([f'Background: want {wanted.background}', *things])}"


def inspection(stage: EditSample) -> str:
    """What a sentence makes of a picture, and what is there, cell by cell; no judgment."""
    cells = _side_by_side(stage.wanted, stage.after, stage.flaws, _WANTED)
    return f"Asked for: {stage.goal}\n{cells}"


def _side_by_side(one: Scene, other: Scene, flaws: Flaws, words: tuple[str, str, str, str]) -> str:
    lines = [_beside("Background:", one.background, other.background, words)]
    for cell in _taken({**one.cells, **other.cells}, flaws):
        first, second = _name(one.cells.get(cell)), _name(other.cells.get(cell))
        lines.append(_beside(_place(cell), first, second, words, _flaw(cell, flaws)))
    return _text(lines)


def _text(lines: list[str]) -> str:
    return "\n".join(f"{line}." for line in lines)


def _taken(cells: Mapping[int, Thing], flaws: Flaws) -> list[int]:
    return sorted({*cells, *flaws.crooked, *flaws.blemished})


def _place(cell: int) -> str:
    return f"{PLACES[cell].capitalize()}:"


def _name(thing: Thing | None) -> str:
    return phrase_noun(thing.kind, thing.colour) if thing else "nothing"


def _flaw(cell: int, flaws: Flaws) -> str | None:
    if cell in flaws.crooked:
        return FLAWS[0]
    return FLAWS[1] if cell in flaws.blemished else None


def _earlier(scene: Scene | None, seed: int) -> Image.Image:
    """The picture before; a white canvas where there was none."""
    return picture(scene, None, seed) if scene else Image.new("RGB", (SIDE, SIDE), "white")


def picture(scene: Scene, flaws: Flaws | None, seed: int) -> Image.Image:
    """A scene as agents get to see it: 96 x 96 pixels."""
    if float(random_by("detail", seed).random()) < _DETAILED:
        return render(scene, 2 * SIDE, flaws).resize((SIDE, SIDE))
    return render(scene, SIDE, flaws)
