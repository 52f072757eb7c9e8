"""The real LLaMA-Factory makes the same tokens and pixels of a sample as we do of a question."""

import json
import random
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from inference.agent_prompts import critic_answer, critic_prompt, planner_answer, planner_prompt
from inference.backends.checkpoint.encoding import AgentQuery
from inference.backends.checkpoint.model import load_checkpoint_model
from tests.inference.backends.checkpoint.tiny_agents import ACCEPTED, PLANNED
from training import environments
from warehouse import EncodedImage

SCRIPT = Path(__file__).with_name("encoded_for_training.py")


def noise(seed, width, height):
    pixels = random.Random(seed).randbytes(3 * width * height)
    return EncodedImage.of(Image.frombytes("RGB", (width, height), pixels))


PICTURES = (noise(1, 192, 192), noise(2, 192, 192), noise(3, 200, 120), noise(4, 30, 20))
TOLD = "a story\n\nSteps so far:\n1. A cat. Draw it. <image>"
SAMPLES = [
    (critic_prompt("Draw a cat.", "A red cat.").text, critic_answer(ACCEPTED), PICTURES[:2]),
    (
        critic_prompt("Draw a cat.", "", "critic-brief").text,
        critic_answer(ACCEPTED),
        PICTURES[2:],
    ),
    (planner_prompt("A story?", "planner-text").text, planner_answer(PLANNED), ()),
    (
        planner_prompt(TOLD, "planner-interleaved", steps_given=1).text,
        "<think></think>\n<answer>{}</answer>",
        PICTURES[:1],
    ),
]


@pytest.fixture(scope="module")
def trained_on(untrained, tmp_path_factory):
    """What LLaMA-Factory makes of the samples."""
    folder = tmp_path_factory.mktemp("samples")
    written = [
        {
            "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": answer},
            ],
            "images": [_file(folder, picture) for picture in pictures],
        }
        for question, answer, pictures in SAMPLES
    ]
    samples, result = folder / "samples.json", folder / "result.json"
    samples.write_text(json.dumps(written))
    python = environments.ensure_environment("sft", "cpu")
    subprocess.run([python, SCRIPT, untrained, samples, result], check=True)
    return json.loads(result.read_text())


def _file(folder, picture):
    path = folder / f"{picture.sha256}.png"
    path.write_bytes(picture.data)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_tokens_and_pixels_are_those_of_training(untrained, trained_on, number):
    question, answer, pictures = SAMPLES[number]
    encoder = load_checkpoint_model(untrained)._loaded.encoder
    prompt, seen = encoder.encode(AgentQuery(question, pictures)), trained_on[number]
    assert prompt.tokens == seen["asked"]
    end = encoder._tokenizer.encode(f"{answer}<|im_end|>\n", add_special_tokens=False)
    assert end == seen["answered"]
    if pictures:
        assert prompt.grids.tolist() == seen["image_grid_thw"]
        assert prompt.pixels.tolist() == seen["pixel_values"]
