"""Tokens of a row are counted as the model's own processor does."""

import pytest
from PIL import Image

from schemas import FoundryError
from training.base_model import PACKAGED_MODEL
from training.row_lengths import TokenCounter

PIXELS = 9216
USER = {"role": "user", "content": "<image><image>\nGoal: Paint a red house."}
SIZES = [(96, 96), (40, 90), (300, 80), (32, 32)]


@pytest.fixture(scope="module")
def processor():
    from inference.backends import torch_cpu_shim

    torch_cpu_shim.install()
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(PACKAGED_MODEL)


@pytest.mark.parametrize("size", SIZES)
def test_prompts_are_as_long_as_the_processor_says(processor, size):
    pictures = [Image.new("RGB", size), Image.new("RGB", (96, 96))]
    text = USER["content"].removeprefix("<image><image>")
    content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": text}]
    prompt = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    tokens = processor(text=[prompt], images=pictures)["input_ids"][0]
    counter = TokenCounter(PACKAGED_MODEL, PIXELS)
    assert counter.count([USER], [size, (96, 96)]) == len(tokens)


def test_larger_pictures_are_shrunk():
    counter = TokenCounter(PACKAGED_MODEL, PIXELS)
    one, other = (counter.count([USER], [size]) for size in ((96, 96), (1024, 1024)))
    assert one == other


def test_a_parent_without_a_tokenizer_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FoundryError, match=r"no tokenizer\.json"):
        TokenCounter(tmp_path, PIXELS).count([USER], [])
