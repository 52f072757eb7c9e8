"""Samples that pretrain the base model: descriptions of images, and of what a prompt makes of them.

| input | answer |
|---|---|
| an image | caption: the content of every occupied cell |
| two images | comparison: earlier content, current content, and whether they are equal |
| image, prompt | expectation: the content that the prompt asks for; no image shows it |
| both images, prompt | inspection: expected content beside the actual one |

A caption has no prompt to copy from, so it teaches to see. Readings have no images: objects are
named among unrelated words, and listed; varied ones also have plurals, and words such as `a picture
book`, which name no object.

Drills have no images either: they pair phrases, and only whether the two are equal is learned. A
model that sees both sides correctly can still not compare them, since image samples teach that too
rarely: a quarter of their cells differ, a few words in a hundred.

Surprises come last. Where the image after an edit is nearly always as requested, a model infers the
request from that image instead of reading the prompt.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from inference.sketch_world.critic import (
    EARLIER_LABELS,
    EXPECTED_LABELS,
    compare_cells,
    compare_names,
    label_cell,
    name_flaw,
    name_thing,
)
from inference.sketch_world.object_catalog import BACKGROUNDS, KINDS, PLACES
from inference.sketch_world.prompt_writer import with_article
from inference.sketch_world.renderer import Flaws, render
from inference.sketch_world.scene import Scene, Thing
from inference.sketch_world.seeded_random import bernoulli, pick, random_by

from .scenes import EditPair, EditSample, altered_thing, random_thing

T = TypeVar("T")
SIDE = 96
MARKS = frozenset({*EXPECTED_LABELS[2:], *EARLIER_LABELS[2:]})
_COMPARISONS = 0.2  # share of the image samples that are no captions
_EXPECTATIONS = 0.4  # share of the others; the rest are inspections
_EMPTY = 0.1  # share of a drill's cells
_COMPOUNDS = ("picture", "story", "school", "comic", "poster", "lesson", "birthday", "guide")
_SHRUNK = 0.7  # share of images that are rendered large and shrunk, as those of the lake are


@dataclass(frozen=True)
class TrainingSample:
    """Images and text of a user's turn, and the answer to learn.

    Attributes:
        marks_only: only the marks of the answer are learned, since all else is random.
    """

    images: tuple[Image.Image, ...]
    question: str
    answer: str
    marks_only: bool = False


def image_sample(seed: int, captions: float, surprises: bool = False) -> TrainingSample:
    """A sample with images, by seed.

    Args:
        captions: share of captions of one image.
        surprises: whether images after an edit mostly differ from the request.
    """
    rng = random_by("lesson", seed)
    if bernoulli(rng, captions):
        edit = EditSample(seed)
        image = render_sample(edit.after, edit.flaws, seed)
        return TrainingSample((image,), "", caption(edit.after, edit.flaws))
    if bernoulli(rng, _COMPARISONS):
        pair = EditPair(seed)
        images = (_render_before(pair.before, seed), render_sample(pair.after, pair.flaws, seed))
        return TrainingSample(images, "", comparison(pair.before, pair.after, pair.flaws))
    edit = EditSample(seed, surprises)
    before = _render_before(edit.before, seed)
    if bernoulli(rng, _EXPECTATIONS):
        return TrainingSample((before,), edit.goal, expectation(edit))
    after = render_sample(edit.after, edit.flaws, seed)
    return TrainingSample((before, after), edit.goal, inspection(edit))


def drill_sample(seed: int) -> TrainingSample:
    """Pairs of phrases, about half of them equal; by seed."""
    rng = random_by("drill", seed)
    labels = pick(rng, [EXPECTED_LABELS, EARLIER_LABELS])
    ground = pick(rng, BACKGROUNDS)
    other_ground = _either(ground, pick(rng, BACKGROUNDS), rng)
    lines = [compare_names("Background", ground, other_ground, labels)]
    for cell in sorted(rng.permutation(len(PLACES))[: int(rng.integers(4, len(PLACES)))]):
        thing = None if bernoulli(rng, _EMPTY) else random_thing(rng)
        other = _either(thing, altered_thing(thing, rng), rng)
        names = name_thing(thing), name_thing(other)
        lines.append(compare_names(label_cell(cell), *names, labels))
    return TrainingSample((), "", "\n".join(lines), marks_only=True)


def reading_sample(seed: int, varied: bool = False) -> TrainingSample:
    """Random words with objects among them, which are to be listed; by seed.

    It prepares the model for requests in words that its training data has not.

    Args:
        varied: also plurals, and compounds that name no object.
    """
    rng = random_by("reading", seed)
    words = [pick(rng, request_words()) for _ in range(int(rng.integers(4, 16)))]
    things = [random_thing(rng) for _ in range(int(rng.integers(1, 4)))]
    mentions = [
        _mention(thing, rng) if varied else with_article(name_thing(thing)) for thing in things
    ]
    compounds = [_compound(rng) for _ in range(int(rng.integers(0, 3)))] if varied else []
    _insert_at_random(mentions, words, rng)
    _insert_at_random(compounds, words, rng)
    names = ", ".join(name_thing(thing) for thing in things)
    return TrainingSample((), " ".join(words), f"Named: {names}.")


def _mention(thing: Thing, rng: np.random.Generator) -> str:
    """An object in one of the forms that requests have."""
    plural = f"{thing.colour} {KINDS[thing.kind].plural}"
    return pick(rng, [with_article(name_thing(thing)), f"the {name_thing(thing)}", plural])


def _compound(rng: np.random.Generator) -> str:
    """Not an object, despite its name: `a picture book`."""
    return with_article(f"{pick(rng, _COMPOUNDS)} {pick(rng, list(KINDS))}")


def _insert_at_random(phrases: list[str], words: list[str], rng: np.random.Generator) -> None:
    """Insert phrases between words, in their order."""
    indices = sorted(int(index) for index in rng.integers(len(words) + 1, size=len(phrases)))
    for index, phrase in reversed(list(zip(indices, phrases, strict=True))):
        words.insert(index, phrase)


@cache
def request_words() -> tuple[str, ...]:
    """Words of requests, in alphabetical order."""
    return tuple((Path(__file__).parent / "requests.txt").read_text("utf-8").split())


def _either(one: T, other: T, rng: np.random.Generator) -> T:
    return one if bernoulli(rng, 0.5) else other


def sample_texts(seed: int) -> tuple[str, ...]:
    """A caption, a comparison and an expectation."""
    edit, pair = EditSample(seed), EditPair(seed)
    return (
        caption(edit.after, edit.flaws),
        comparison(pair.before, pair.after, pair.flaws),
        expectation(edit),
    )


def caption(scene: Scene, flaws: Flaws) -> str:
    """The content of an image, cell by cell."""
    lines = [f"Background: see {scene.background}."]
    for cell in sorted({*scene.cells, *flaws.crooked, *flaws.blemished}):
        contents = filter(None, (name_thing(scene.cells.get(cell)), name_flaw(cell, flaws)))
        lines.append(f"{label_cell(cell)}: see {', '.join(contents)}.")
    return "\n".join(lines)


def comparison(before: Scene | None, after: Scene, flaws: Flaws) -> str:
    """The content of two images, cell by cell, and whether it is the same."""
    return "\n".join(compare_cells(before or Scene("nothing"), after, flaws, EARLIER_LABELS))


def expectation(edit: EditSample) -> str:
    """The expected content after an edit, cell by cell."""
    earlier, target = edit.before.cells if edit.before else {}, edit.target
    contents = {cell: name_thing(target.cells.get(cell)) for cell in {*earlier, *target.cells}}
    lines = [f"{label_cell(cell)}: want {name}." for cell, name in sorted(contents.items())]
    return "\n".join([f"Asked for: {edit.goal}", f"Background: want {target.background}.", *lines])


def inspection(edit: EditSample) -> str:
    """The expected and the actual content, cell by cell; no verdict."""
    cells = compare_cells(edit.target, edit.after, edit.flaws)
    return "\n".join([f"Asked for: {edit.goal}", *cells])


def _render_before(scene: Scene | None, seed: int) -> Image.Image:
    """The image before an edit; a white canvas where there was none."""
    return render_sample(scene, None, seed) if scene else Image.new("RGB", (SIDE, SIDE), "white")


def render_sample(scene: Scene, flaws: Flaws | None, seed: int) -> Image.Image:
    """A scene at the size that agents see: 96 x 96 pixels."""
    if float(random_by("detail", seed).random()) < _SHRUNK:
        return render(scene, 2 * SIDE, flaws).resize((SIDE, SIDE))
    return render(scene, SIDE, flaws)
