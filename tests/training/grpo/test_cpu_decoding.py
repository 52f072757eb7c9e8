"""The CPU rollouts: log-probabilities, limits and seeds of what `checkpoint` decodes in batches."""

from runpy import run_path

import pytest
import torch
from PIL import Image

from inference.backends import torch_cpu_shim
from tests.helpers.tiny_model import build_untrained
from training.grpo.recipe import PLUGINS

# By its file: the package around it registers with verl, which is not in our environment.
decoding = run_path(str(PLUGINS / "verl_cpu" / "decoding.py"))
Request, Decoder, Vocabulary = (decoding[name] for name in ("Request", "Decoder", "Vocabulary"))
VISION = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")


@pytest.fixture(scope="module")
def model_and_processor(tmp_path_factory):
    torch_cpu_shim.install()
    from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

    folder = tmp_path_factory.mktemp("tiny")
    build_untrained(folder)
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():  # less even a distribution, so that greedy answers differ
        for weights in model.parameters():
            weights.mul_(1.5)
    return model, AutoProcessor.from_pretrained(folder)


@pytest.fixture(scope="module")
def decoder(model_and_processor):
    model, processor = model_and_processor
    vocabulary = Vocabulary(
        image=model.config.image_token_id,
        pad=processor.tokenizer.pad_token_id,
        ends=frozenset({processor.tokenizer.eos_token_id}),
        banned=tuple(getattr(model.config, name) for name in VISION),
    )
    return Decoder(model, processor.image_processor, vocabulary)


@pytest.fixture(scope="module")
def prompts(model_and_processor):
    """Three questions of different lengths, with one image, two and none."""
    _, processor = model_and_processor
    colours = [("red",), ("blue", "white"), ()]
    texts = ["Goal: a red house", "Goal: a tree in the center of it all", "Goal: none"]
    return [_prompt(processor, text, names) for text, names in zip(texts, colours, strict=True)]


def _prompt(processor, text, colours):
    images = tuple(Image.new("RGB", (96, 96), colour) for colour in colours)
    content = [*({"type": "image"} for _ in images), {"type": "text", "text": text}]
    turn = [{"role": "user", "content": content}]
    rendered = processor.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    ids = processor(text=[rendered], images=list(images) or None, return_tensors="pt").input_ids
    return tuple(ids[0].tolist()), images


def decode(decoder, requests, seed=0):
    answers = {}
    decoder.decode(requests, seed, answers.__setitem__)
    assert sorted(answers) == list(range(len(requests)))
    return [answers[i] for i in range(len(requests))]


def inputs_of(model, processor, prompt, images):
    ids = torch.tensor([prompt])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
    if images:
        inputs |= processor.image_processor(images=list(images), return_tensors="pt")
    return inputs


def test_log_probabilities_are_those_the_trainer_would_find(decoder, model_and_processor, prompts):
    model, processor = model_and_processor
    prompt, images = prompts[0]
    (answer,) = decode(decoder, [Request(prompt, images, 1.0, 20)])
    sequence = (*prompt, *answer.tokens)
    with torch.no_grad():
        logits = model(**inputs_of(model, processor, sequence, images)).logits[0]
    logits[:, [getattr(model.config, name) for name in VISION]] = -torch.inf
    expected = logits[len(prompt) - 1 : -1].log_softmax(-1)
    expected = expected.gather(-1, torch.tensor(answer.tokens)[:, None])[:, 0]
    assert answer.log_probs == pytest.approx(expected.tolist(), abs=1e-4)


def test_every_request_keeps_its_own_limit(decoder, prompts):
    limits = [3, 9, 1, 20, 5]
    requests = [Request(*prompts[i % 3], 1.0, limit) for i, limit in enumerate(limits)]
    order = []
    decoder.decode(requests, 0, lambda index, answer: order.append((index, len(answer.tokens))))
    assert all(length <= limits[index] for index, length in order)
    assert order[0] == (2, 1)  # the shortest is delivered first, not with the longest


def test_rollouts_of_a_prompt_differ_and_follow_from_the_seed(decoder, prompts):
    requests = [Request(*prompts[1], 1.0, 10)] * 6
    first, again, other = (decode(decoder, requests, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len({tuple(answer.tokens) for answer in first}) > 1
