"""The contract of every diffusers model of the registry, with a tiny pipeline each."""

import random

import numpy as np
import pytest
from PIL import Image

from inference.backends.diffusers.pipeline_runner import GenerationSpec, PipelineRunner
from inference.backends.diffusers.registry import SamplingParams, SelectedModel, load_registry
from inference.roles import UnusableAnswerError
from schemas import BadImageError
from tests.inference.backends.diffusers.conftest import shrink_megapixels
from warehouse import EncodedImage

MODELS = {name: m for name, m in load_registry().models.items() if m.backend == "diffusers"}
# Batches sum in another order, which may change a pixel by rounding; another prompt or image
# changes pixels by 16 and more.
ROUNDING = 2
QUICK = SamplingParams(steps=2, size="64x64")


class ModelUnderTest:
    """A model with a runner, and specs that it supports."""

    def __init__(self, name, folder):
        # The tiny pipeline has no room for the LoRA of the real one; see test_pipeline_runner.py.
        changes = {"model": str(folder), "revision": None, "lora": None}
        self.model = MODELS[name].model_copy(update=changes)
        self.params = QUICK.over(self.model.defaults)
        selected = SelectedModel(name, self.model, self.params, "float32")
        self.runner = PipelineRunner(selected, "cpu", 4)
        self._alone = {}

    def spec(self, prompt="a red cat", seed=1, images=None, **more):
        """From text where the model can, else from an image, with a mask if it needs one."""
        if images is None:
            images = () if "text" in self.model.can else (noise(1),)
        if images and self.model.can == ("mask",):
            more.setdefault("mask", half_white())
        return GenerationSpec(prompt, seed, more.pop("params", self.params), images, **more)

    def draw(self, *specs):
        return self.runner.draw(specs)

    def pixels(self, *specs):
        return [np.asarray(image.image, int) for image in self.draw(*specs)]

    def alone(self, spec):
        """Pixels of an image that is drawn by itself, once for all tests."""
        if spec not in self._alone:
            self._alone[spec] = self.pixels(spec)[0]
        return self._alone[spec]

    def distance(self, one, other):
        """The largest difference of a pixel between two images, each drawn separately."""
        return np.abs(self.alone(one) - self.alone(other)).max()


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
    shrink_megapixels(monkeypatch)


@pytest.fixture(scope="module", params=MODELS)
def model(request, pipelines):
    return ModelUnderTest(request.param, pipelines(MODELS[request.param].pipeline))


def test_images_follow_from_the_seed(model):
    first, again, other = model.pixels(model.spec(), model.spec(), model.spec(seed=2))
    assert first.std() > 1
    assert np.array_equal(model.alone(model.spec()), model.pixels(model.spec())[0])
    assert (first != other).mean() > 0.5
    assert_nearly_equal(first, again)


def test_prompt_and_images_matter(model):
    other_prompt = model.spec("a small blue house in the snow")
    assert model.distance(model.spec(), other_prompt) > ROUNDING
    if {"edit", "mask"} & {*model.model.can}:
        one, other = (model.spec(images=(noise(seed),)) for seed in (1, 2))
        assert model.distance(one, other) > ROUNDING


def test_a_model_supports_its_abilities_and_rejects_others(model):
    specs = {
        "text": model.spec(images=()),
        "edit": GenerationSpec("a red cat", 1, model.params, (noise(1),)),
        "mask": GenerationSpec("a red cat", 1, model.params, (noise(1),), half_white()),
    }
    for ability, spec in specs.items():
        (result,) = model.draw(spec)
        expected = EncodedImage if ability in model.model.can else UnusableAnswerError
        assert isinstance(result, expected), f"{ability}: {result}"
    small_mask, mask = (
        GenerationSpec("a", 1, model.params, (noise(1),), half_white((32, 32))),
        half_white(),
    )
    for result in model.draw(small_mask, GenerationSpec("a", 1, model.params, (), mask)):
        assert isinstance(result, UnusableAnswerError)


def test_only_models_with_references_use_more_than_the_last_image(model):
    last = noise(9)
    one, other = (model.spec(images=(noise(seed), last)) for seed in (1, 2))
    if {"edit", "mask"} & {*model.model.can}:
        assert (model.distance(one, other) > ROUNDING) == ("references" in model.model.can)


def test_an_image_has_the_requested_size(model):
    params = SamplingParams(size="100x70").over(model.params)  # is no multiple of a patch
    (image,) = model.draw(model.spec(params=params))
    assert image.image.size == (100, 70)


def test_a_batch_is_as_single_images(model):
    prompts = ("a cat", "a much longer story of two dogs and a house", "b")
    images = (lambda n: ()) if "text" in model.model.can else (lambda n: (noise(n),))
    specs = [model.spec(p, n, images(n)) for n, p in enumerate(prompts)]
    batch = model.pixels(*specs)
    for pixels, spec in zip(batch, specs, strict=True):
        assert_nearly_equal(pixels, model.alone(spec))


def test_invalid_specs_do_not_affect_others(model):
    edits = bool({"edit", "mask"} & {*model.model.can})
    specs = [
        model.spec(),
        model.spec(images=(EncodedImage(b"no picture"),)),
        model.spec("half a \ud83d"),  # half a surrogate pair, which no tokenizer accepts
        model.spec(seed=2),
    ]
    first, bad_image, bad_text, last = model.draw(*specs)
    assert isinstance(bad_image, BadImageError if edits else UnusableAnswerError)
    assert isinstance(bad_text, UnusableAnswerError)
    assert_nearly_equal(np.asarray(first.image, int), model.alone(specs[0]))
    assert_nearly_equal(np.asarray(last.image, int), model.alone(specs[3]))


def test_a_negative_prompt_is_used_or_rejected(model):
    params = SamplingParams(negative_prompt="fog and rain").over(model.params)
    default, result = model.draw(model.spec(), model.spec(params=params))
    if isinstance(result, UnusableAnswerError):
        assert "negative prompt" in str(result)
        assert model.params.negative_prompt is None
    else:
        assert result != default


def assert_nearly_equal(one, other):
    assert one.shape == other.shape
    assert np.abs(one - other).max() <= ROUNDING
