"""What every model of the registry that diffusers plays keeps to, with a tiny pipeline each."""

import random

import numpy as np
import pytest
from PIL import Image

from inference.backends.diffusers.generation_spec import GenerationSpec
from inference.backends.diffusers.model_selection import SelectedModel
from inference.backends.diffusers.pipeline_runner import load_pipeline_runner
from inference.backends.diffusers.registry import load_registry
from inference.backends.diffusers.sampling_params import SamplingParams
from inference.roles import UnusableAnswerError
from schemas import BadImageError
from tests.inference.backends.diffusers import tiny
from warehouse import EncodedImage

MODELS = {name: m for name, m in load_registry().models.items() if m.backend == "diffusers"}
# Sums of a batch are made in another order, which may move a pixel by rounding; what a prompt or
# a picture moves is 16 and more.
ROUNDING = 2
QUICK = SamplingParams(steps=2, size="64x64")


class Bench:
    """A model with a painter, and requests that it can draw."""

    def __init__(self, name, folder):
        # The tiny pipeline has no room for the LoRA of the real one; see test_painter.py.
        changes = {"model": str(folder), "revision": None, "lora": None}
        self.model = MODELS[name].model_copy(update=changes)
        self.manner = QUICK.over(self.model.defaults)
        self.choice = SelectedModel(name, self.model, self.manner, "float32")
        self.painter = load_pipeline_runner(self.choice, "cpu", 4)

    def drawing(self, prompt="a red cat", seed=1, images=None, **more):
        """From nothing where the model can, else from a picture, with a mask if it wants one."""
        if images is None:
            images = () if "text" in self.model.can else (noise(1),)
        if images and self.model.can == ("mask",):
            more.setdefault("mask", half_white())
        return GenerationSpec(prompt, seed, more.pop("manner", self.manner), images, **more)

    def draw(self, *drawings):
        return self.painter.draw(drawings)

    def pixels(self, *drawings):
        return [np.asarray(picture.image, int) for picture in self.draw(*drawings)]

    def distance(self, one, other):
        """The largest difference of a pixel between two drawings, each drawn alone."""
        return np.abs(self.pixels(one)[0] - self.pixels(other)[0]).max()


def noise(seed, size=(64, 64)):
    width, height = size
    data = random.Random(seed).randbytes(width * height * 3)
    return EncodedImage.of(Image.frombytes("RGB", size, data))


def half_white(size=(64, 64)):
    mask = Image.new("L", size)
    mask.paste(255, (0, 0, size[0] // 2, size[1]))
    return EncodedImage.of(mask)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    tiny.shrink_megapixels(monkeypatch)


@pytest.fixture(scope="module", params=MODELS)
def bench(request, pipelines):
    return Bench(request.param, pipelines(MODELS[request.param].pipeline))


def test_a_seed_is_a_picture(bench):
    first, again, other = bench.pixels(bench.drawing(), bench.drawing(), bench.drawing(seed=2))
    alone = bench.pixels(bench.drawing())[0]
    assert first.std() > 1
    assert np.array_equal(alone, bench.pixels(bench.drawing())[0])
    assert (first != other).mean() > 0.5
    assert_nearly_equal(first, again)


def test_prompt_and_pictures_matter(bench):
    other_words = bench.drawing("a small blue house in the snow")
    assert bench.distance(bench.drawing(), other_words) > ROUNDING
    if bench.model.can != ("text",):
        one, other = (bench.drawing(images=(noise(seed),)) for seed in (1, 2))
        assert bench.distance(one, other) > ROUNDING


def test_a_model_does_what_it_can_and_refuses_the_rest(bench):
    able = {
        "text": bench.drawing(images=()),
        "edit": GenerationSpec("a red cat", 1, bench.manner, (noise(1),)),
        "mask": GenerationSpec("a red cat", 1, bench.manner, (noise(1),), half_white()),
    }
    for ability, drawing in able.items():
        (drawn,) = bench.draw(drawing)
        expected = EncodedImage if ability in bench.model.can else UnusableAnswerError
        assert isinstance(drawn, expected), f"{ability}: {drawn}"
    small, lost = (
        GenerationSpec("a", 1, bench.manner, (noise(1),), half_white((32, 32))),
        half_white(),
    )
    for drawn in bench.draw(small, GenerationSpec("a", 1, bench.manner, (), lost)):
        assert isinstance(drawn, UnusableAnswerError)


def test_only_models_that_look_at_references_see_more_than_the_last_picture(bench):
    last = noise(9)
    one, other = (bench.drawing(images=(noise(seed), last)) for seed in (1, 2))
    if bench.model.can != ("text",):
        assert (bench.distance(one, other) > ROUNDING) == ("references" in bench.model.can)


@pytest.mark.parametrize("size", ["96x64", "100x70"])
def test_a_picture_has_the_wanted_size(bench, size):
    manner = SamplingParams(size=size).over(bench.manner)
    (drawn,) = bench.draw(bench.drawing(manner=manner))
    assert "{}x{}".format(*drawn.image.size) == size


def test_a_batch_is_drawn_as_one_by_one(bench):
    prompts = ("a cat", "a much longer story of two dogs and a house", "b")
    images = (lambda n: ()) if "text" in bench.model.can else (lambda n: (noise(n),))
    asked = [bench.drawing(p, n, images(n)) for n, p in enumerate(prompts)]
    together = bench.pixels(*asked)
    for picture, drawing in zip(together, asked, strict=True):
        assert_nearly_equal(picture, bench.pixels(drawing)[0])


def test_bad_requests_cost_the_others_nothing(bench):
    edits = bench.model.can != ("text",)
    asked = [
        bench.drawing(),
        bench.drawing(images=(EncodedImage(b"no picture"),)),
        bench.drawing("half a \ud83d"),  # the first half of a character, which no tokenizer takes
        bench.drawing(seed=2),
    ]
    first, unreadable, unspeakable, last = bench.draw(*asked)
    assert isinstance(unreadable, BadImageError if edits else UnusableAnswerError)
    assert isinstance(unspeakable, UnusableAnswerError)
    assert_nearly_equal(np.asarray(first.image, int), bench.pixels(asked[0])[0])
    assert_nearly_equal(np.asarray(last.image, int), bench.pixels(asked[3])[0])


def test_a_negative_prompt_counts_or_is_refused(bench):
    manner = SamplingParams(negative_prompt="fog and rain").over(bench.manner)
    plain, drawn = bench.draw(bench.drawing(), bench.drawing(manner=manner))
    if isinstance(drawn, UnusableAnswerError):
        assert "negative prompt" in str(drawn)
        assert bench.manner.negative_prompt is None
    else:
        assert drawn != plain


def assert_nearly_equal(one, other):
    assert one.shape == other.shape
    assert np.abs(one - other).max() <= ROUNDING
