"""Real files of transformers and peft: all weights of an adapter are merged, or loading fails."""

import json
import shutil

import pytest

from inference.backends import torch_cpu_shim
from inference.backends.checkpoint.encoding import AgentQuery
from inference.backends.checkpoint.model import BatchedModel
from inference.backends.diffusers import tiny
from inference.backends.editscore.backend import load
from inference.roles import BackendError
from tests.helpers.tiny_editscore import settings, tiny_adapter, tiny_model
from tests.inference.backends.checkpoint.tiny_agents import greedy_tokens, texts_of
from tests.inference.scripted_world import tiny_image

QUERY = AgentQuery("<image><image>Is it done?", (tiny_image(1), tiny_image(2)))


def logits(model, loaded):
    """Of the answer's first token: 1 x vocabulary."""
    import torch

    inputs = loaded.encoder.pad([loaded.encoder.encode(QUERY)], "cpu")
    model.eval()
    with torch.inference_mode():
        return model(**inputs).logits[:, -1]


def load_model(model, **more):
    chosen = settings(model, **more)
    return load(chosen, repr(chosen))


def test_an_adapter_is_merged_into_the_model(model, adapter):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText

    plain = load_model(model)
    before = logits(plain.model, plain)
    tuned = load_model(model, adapter=str(adapter))
    after = logits(tuned.model, tuned)
    base = AutoModelForImageTextToText.from_pretrained(model)
    unmerged = logits(PeftModel.from_pretrained(base, adapter), tuned)
    assert type(tuned.model) is type(plain.model)
    assert torch.allclose(after, unmerged, atol=1e-4)
    assert not torch.allclose(after, before, atol=1e-1)


def test_an_adapter_of_another_model_is_rejected(model, tmp_path):
    deeper = tiny_model(tmp_path / "deeper", layers=3)
    adapter = tiny_adapter(tmp_path / "adapter", deeper)
    with pytest.raises(BackendError, match="is not for this model: 4 of its weights") as caught:
        load_model(model, adapter=str(adapter))
    assert "\n" not in str(caught.value)


def test_a_failed_load_is_one_line(model, tmp_path):
    with pytest.raises(BackendError, match="cannot be loaded on cpu: ") as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(BackendError, match="is a gpt2; EditScore is for qwen3_vl and qwen2_5_vl"):
        load_model(tmp_path)


def test_images_are_numbered_on_qwen2_5_vl(qwen2_5):
    loaded = load_model(qwen2_5)
    text = loaded.encoder.decode(loaded.encoder.encode(QUERY).tokens)
    assert text.startswith(
        "system\nYou are a helpful assistant.\nuser\n<img1>: <img2>: Is it done?"
    )


def test_batches_on_qwen2_5_vl_are_as_single_queries(qwen2_5):
    loaded = load_model(qwen2_5)
    queries = [QUERY, AgentQuery("<image>" + "clean? " * 9, (tiny_image(3),)), QUERY]
    queries = [AgentQuery(query.text, query.images, 10) for query in queries]
    model = BatchedModel(lambda: loaded, batch=32, batch_tokens=131_072)
    texts = texts_of(model, queries)
    assert texts == [texts_of(model, [query])[0] for query in queries]
    tokens = greedy_tokens(loaded, queries[0], 10)
    ends = [place for place, token in enumerate(tokens) if token in loaded.stops] or [10]
    assert texts[0] == loaded.encoder.decode(tokens[: ends[0]])


@pytest.fixture(scope="module")
def qwen2_5(tmp_path_factory):
    """A tiny Qwen2.5-VL with random weights: the text encoder of a pipeline, and its processor."""
    torch_cpu_shim.install()  # before diffusers is imported
    pipeline = tiny.build("QwenImageEditPipeline", tmp_path_factory.mktemp("editscore") / "tiny")
    folder = pipeline / "text_encoder"
    shutil.copytree(pipeline / "processor", folder, dirs_exist_ok=True)
    ends = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    ids = [token["id"] for token in ends if token["content"] in ("<|im_end|>", "<|endoftext|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    return folder
