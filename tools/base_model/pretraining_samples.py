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

import numpy as np
from PIL import Image

from inference.sketch_world import critic
from inference.sketch_world.object_catalog import BACKGROUNDS, KINDS, PLACES
from inference.sketch_world.prompt_writer import name_thing, with_article
from inference.sketch_world.renderer import Flaws, render
from inference.sketch_world.scene import Scene, Thing
from inference.sketch_world.seeded_random import bernoulli, pick, random_by

from .scenes import EditPair, EditSample, altered_thing, random_thing

SIDE = 96
MARKS = frozenset({*critic.EXPECTED_LABELS[2:], *critic.EARLIER_LABELS[2:]})
_COMPARISONS = 0.2  # share of the image samples that are no captions
_EXPECTATIONS = 0.4  # share of the others; the rest are inspections
_EMPTY = 0.1  # share of a drill's cells
_COMPOUNDS = ("picture", "story", "school", "comic", "poster", "lesson", "birthday", "guide")
_SHRUNK = 0.7  # share of images that are rendered large and shrunk, as those of the lake are


@dataclass(frozen=True)
class TrainingSample:
    """Images and text of a user's turn, and the answer to learn."""

    images: tuple[Image.Image, ...]
    question: str
    answer: str
    marks_only: bool = False  # only the answer's marks are learned, since all else is random


def image_sample(seed: int, captions: float, surprises: bool = False) -> TrainingSample:
    """A sample with images, by seed. `captions`: share of captions of one image."""
    rng = random_by("lesson", seed)
    if bernoulli(rng, captions):
        edit = EditSample(seed)
        image = render_sample(edit.after, edit.flaws, seed)
        return TrainingSample((image,), "", caption(edit.after, edit.flaws))
    if bernoulli(rng, _COMPARISONS):
        pair = EditPair(seed)
        images = (_render_before(pair.before, seed), render_sample(pair.after, pair.flaws, seed))
        return TrainingSample(images, "", comparison(pair))
    edit = EditSample(seed, surprises)
    before = _render_before(edit.before, seed)
    if bernoulli(rng, _EXPECTATIONS):
        return TrainingSample((before,), edit.goal, expectation(edit))
    after = render_sample(edit.after, edit.flaws, seed)
    return TrainingSample((before, after), edit.goal, inspection(edit))


def drill_sample(seed: int) -> TrainingSample:
    """Pairs of phrases, about half of them equal; by seed."""
    rng = random_by("drill", seed)
    labels = pick(rng, [critic.EXPECTED_LABELS, critic.EARLIER_LABELS])
    background, altered = pick(rng, BACKGROUNDS), pick(rng, BACKGROUNDS)
    other = background if bernoulli(rng, 0.5) else altered
    lines = [critic.compare_names("Background", background, other, labels)]
    for cell in sorted(rng.permutation(len(PLACES))[: int(rng.integers(4, len(PLACES)))]):
        thing = None if bernoulli(rng, _EMPTY) else random_thing(rng)
        changed = altered_thing(thing, rng)
        names = name_thing(thing), name_thing(thing if bernoulli(rng, 0.5) else changed)
        lines.append(critic.compare_names(critic.label_cell(cell), *names, labels))
    return TrainingSample((), "", "\n".join(lines), marks_only=True)


def reading_sample(seed: int, varied: bool = False) -> TrainingSample:
    """Random words with objects among them, which are to be listed; by seed.

    It prepares the model for requests in words that its training data has not. `varied`: also
    plurals, and compounds that name no object.
    """
    rng = random_by("reading", seed)
    words = [pick(rng, request_words()) for _ in range(int(rng.integers(4, 16)))]
    things = [random_thing(rng) for _ in range(int(rng.integers(1, 4)))]
    mentions = [_mention(t, rng) if varied else with_article(name_thing(t)) for t in things]
    compounds = [_compound(rng) for _ in range(int(rng.integers(0, 3)))] if varied else []
    _insert_at_random(mentions, words, rng)
    _insert_at_random(compounds, words, rng)
    names = ", ".join(name_thing(thing) for thing in things)
    return TrainingSample((), " ".join(words), f"Named: {names}.")


def _mention(thing: Thing, rng: np.random.Generator) -> str:
    plural = f"{thing.colour} {KINDS[thing.kind].plural}"
    return pick(rng, [with_article(name_thing(thing)), f"the {name_thing(thing)}", plural])


def _compound(rng: np.random.Generator) -> str:
    """Not an object, despite its name: `a picture book`."""
    return with_article(f"{pick(rng, _COMPOUNDS)} {pick(rng, list(KINDS))}")


def _insert_at_random(phrases: list[str], words: list[str], rng: np.random.Generator) -> None:
    indices = sorted(int(index) for index in rng.integers(len(words) + 1, size=len(phrases)))
    for index, phrase in reversed(list(zip(indices, phrases, strict=True))):
        words.insert(index, phrase)


@cache
def request_words() -> tuple[str, ...]:
    return tuple((Path(__file__).parent / "requests.txt").read_text("utf-8").split())


def sample_texts(seed: int) -> tuple[str, ...]:
    edit, pair = EditSample(seed), EditPair(seed)
    return caption(edit.after, edit.flaws), comparison(pair), expectation(edit)


def caption(scene: Scene, flaws: Flaws) -> str:
    lines = [f"Background: see {scene.background}."]
    for cell in sorted({*scene.cells, *flaws.crooked, *flaws.blemished}):
        contents = filter(None, (name_thing(scene.cells.get(cell)), critic.name_flaw(cell, flaws)))
        lines.append(f"{critic.label_cell(cell)}: see {', '.join(contents)}.")
    return "\n".join(lines)


def comparison(pair: EditPair) -> str:
    before = pair.before or Scene("nothing")
    return "\n".join(critic.compare_cells(before, pair.after, pair.flaws, critic.EARLIER_LABELS))


def expectation(edit: EditSample) -> str:
    earlier, target = edit.before.cells if edit.before else {}, edit.target
    contents = {cell: name_thing(target.cells.get(cell)) for cell in {*earlier, *target.cells}}
    lines = [f"{critic.label_cell(cell)}: want {name}." for cell, name in sorted(contents.items())]
    return "\n".join([f"Asked for: {edit.goal}", f"Background: want {target.background}.", *lines])


def inspection(edit: EditSample) -> str:
    cells = critic.compare_cells(edit.target, edit.after, edit.flaws)
    return "\n".join([f"Asked for: {edit.goal}", *cells])


def _render_before(scene: Scene | None, seed: int) -> Image.Image:
    """The image before an edit; a white canvas where there was none."""
    return render_sample(scene, None, seed) if scene else Image.new("RGB", (SIDE, SIDE), "white")


def render_sample(scene: Scene, flaws: Flaws | None, seed: int) -> Image.Image:
    """A scene at the size that agents see: 96 x 96 pixels."""
    if bernoulli(random_by("detail", seed), _SHRUNK):
        return render(scene, 2 * SIDE, flaws).resize((SIDE, SIDE))
    return render(scene, SIDE, flaws)
