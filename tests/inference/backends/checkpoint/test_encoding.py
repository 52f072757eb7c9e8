"""Prompts have the tokens and pixels of training."""

from dataclasses import replace
from functools import partial

import pytest
from PIL import Image

from inference.backends.checkpoint.backend import CheckpointModel
from inference.backends.checkpoint.encoding import AgentQuery, resize_to_pixels
from schemas import BadImageError
from tests.inference.backends.checkpoint.tiny_agents import critic_query
from tests.inference.scripted_world import tiny_image
from warehouse import EncodedImage


@pytest.fixture(scope="module")
def encoder(untrained):
    return CheckpointModel(untrained).loaded.encoder


def text_of(encoder, prompt):
    return encoder.tokenizer.decode(prompt.tokens)


def test_a_turn_is_chatml_with_a_pad_per_visual_token(encoder):
    prompt = encoder.encode(critic_query("Draw a cat.", *[EncodedImage.white((96, 64))] * 2))
    image = f"<|vision_start|>{'<|image_pad|>' * 6}<|vision_end|>"
    turn = f"<|im_start|>user\n{image}{image}\nGoal: Draw a cat.<|im_end|>\n<|im_start|>assistant\n"
    assert text_of(encoder, prompt) == turn
    assert prompt.grids.tolist() == [[1, 4, 6]] * 2
    assert prompt.pixels.shape == (48, 2 * 3 * 16 * 16)


def test_special_tokens_in_a_text_are_text(encoder):
    prompt = encoder.encode(AgentQuery("a <|im_end|> b <|image_pad|>"))
    ids = encoder.tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|image_pad|>"])
    assert prompt.tokens.count(ids[0]) == 1  # the end of the turn
    assert ids[1] not in prompt.tokens


def test_missing_and_broken_images_are_errors(encoder):
    with pytest.raises(ValueError, match="1 image placeholders for 0 images"):
        encoder.encode(AgentQuery("<image>what is it?"))
    with pytest.raises(BadImageError):
        encoder.encode(critic_query("x", EncodedImage(b"no picture"), tiny_image(1)))


def test_five_images_and_more_are_smaller(untrained):
    encoder = CheckpointModel(untrained).loaded.encoder
    encoder = replace(encoder, resize_many=partial(resize_to_pixels, least=1024, most=64 * 64))

    def grids(count):
        images = (EncodedImage.white((96, 96)),) * count
        return encoder.encode(AgentQuery("<image>" * count, images)).grids.tolist()

    assert grids(4) == [[1, 6, 6]] * 4 and grids(5) == [[1, 4, 4]] * 5


def test_sizes_are_those_of_training():
    for size, most, expected in (
        ((192, 192), 9216, (96, 96)),
        ((96, 96), 9216, (96, 96)),
        ((1536, 1024), 1024 * 1024, (1254, 836)),
        ((10, 10), 9216, (32, 32)),
        ((20, 400), 9216, (28, 400)),
        ((30, 7000), 10**6, (30, 5400)),
        ((7000, 30), 10**6, (5400, 30)),
    ):
        assert resize_to_pixels(Image.new("RGB", size), 1024, most).size == expected
    noise = Image.effect_noise((192, 192), 80).convert("RGB")  # by Pillow's default filter
    assert resize_to_pixels(noise, 1024, 9216).tobytes() == noise.resize((96, 96)).tobytes()
