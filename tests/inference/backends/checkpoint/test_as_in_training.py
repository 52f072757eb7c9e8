"""The real LLaMA-Factory encodes a sample to the same tokens and pixels as our encoder."""

import json
import random
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from inference import environments
from inference.agent_prompts.formatting import critic_answer, planner_answer
from inference.agent_prompts.templates import critic_prompt, planner_prompt
from inference.backends.checkpoint.backend import CheckpointModel
from inference.backends.checkpoint.encoding import AgentQuery
from tests.inference.backends.checkpoint.tiny_agents import ACCEPTED, PLANNED
from warehouse import EncodedImage

SCRIPT = Path(__file__).with_name("encoded_for_training.py")


def noise(seed, width, height):
    pixels = random.Random(seed).randbytes(3 * width * height)
    return EncodedImage.of(Image.frombytes("RGB", (width, height), pixels))


IMAGES = (noise(1, 192, 192), noise(2, 192, 192), noise(3, 200, 120), noise(4, 30, 20))
CONTINUED = "a story\n\nSteps so far:\n1. A cat. Draw it. <image>"
SAMPLES = [
    (critic_prompt("Draw a cat.", "A red cat.").text, critic_answer(ACCEPTED), IMAGES[:2]),
    (critic_prompt("Draw a cat.", "", "critic-brief").text, critic_answer(ACCEPTED), IMAGES[2:]),
    (planner_prompt("A story?", "planner-text").text, planner_answer(PLANNED), ()),
    (
        planner_prompt(CONTINUED, "planner-interleaved", steps_given=1).text,
        "<think></think>\n<answer>{}</answer>",
        IMAGES[:1],
    ),
]


@pytest.fixture(scope="module")
def encoded_for_training(untrained, tmp_path_factory):
    """The samples as LLaMA-Factory encodes them."""
    folder = tmp_path_factory.mktemp("samples")
    messages = [
        {
            "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": answer},
            ],
            "images": [_save(folder, image) for image in images],
        }
        for question, answer, images in SAMPLES
    ]
    samples, result = folder / "samples.json", folder / "result.json"
    samples.write_text(json.dumps(messages))
    python = environments.ensure_environment("sft", "cpu")
    subprocess.run([python, SCRIPT, untrained, samples, result], check=True)
    return json.loads(result.read_text())


def _save(folder, image):
    path = folder / f"{image.sha256}.png"
    path.write_bytes(image.data)
    return str(path)


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_tokens_and_pixels_are_those_of_training(untrained, encoded_for_training, number):
    question, answer, images = SAMPLES[number]
    encoder = CheckpointModel(untrained).loaded.encoder
    prompt = encoder.encode(AgentQuery(question, images))
    expected = encoded_for_training[number]
    assert prompt.tokens == expected["prompt"]
    end = encoder.tokenizer.encode(f"{answer}<|im_end|>\n", add_special_tokens=False)
    assert end == expected["answer"]
    if images:
        assert prompt.grids.tolist() == expected["image_grid_thw"]
        assert prompt.pixels.tolist() == expected["pixel_values"]
