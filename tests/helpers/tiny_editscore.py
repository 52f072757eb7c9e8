"""Tiny edit-reward models of EditScore's classes, with random or overfitted weights."""

from contextlib import contextmanager
from pathlib import Path

from inference.backends.checkpoint.encoding import AgentQuery
from inference.backends.editscore.backend import EditScoreSettings, PromptTexts, load
from tests.helpers.tiny_model import build_untrained, labelled
from warehouse import EncodedImage

SEMANTICS = '{"reasoning": "It is there.", "score": [20, 15]}'
QUALITY = '{"reasoning": "It is clean.", "score": [25, 10]}'


def tiny_model(folder: Path, layers: int = 2) -> Path:
    """A Qwen3-VL with random weights."""
    build_untrained(folder, hidden=96, layers=layers, feed_forward=128, vision_hidden=64)
    return folder


def tiny_adapter(folder: Path, model: Path) -> Path:
    """Low-rank weights that change what a model answers."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(1)
    config = LoraConfig(
        r=4, lora_alpha=64, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    base = AutoModelForImageTextToText.from_pretrained(model)
    get_peft_model(base, config).save_pretrained(folder)
    return folder


def short_prompts(folder: Path) -> Path:
    """A folder with short versions of the two prompts."""
    folder.mkdir()
    (folder / "semantics.txt").write_text("Is <instruction> done?")
    (folder / "quality.txt").write_text("Is it clean?")
    return folder


def settings(model: Path, **more: object) -> EditScoreSettings:
    defaults = {"model": str(model), "adapter": None, "device": "cpu", "samples": 2}
    return EditScoreSettings(**(defaults | {"max_new_tokens": 40, "temperature": 0.1} | more))


def overfit(model: Path, prompts: Path, steps: int = 120) -> None:
    """Train a model until it gives every attempt the same ratings, whatever its images."""
    import torch

    with_prompts = settings(model, prompts=prompts)
    loaded = load(with_prompts, "to be overfitted")
    _ignore_images(loaded.model.model.visual)
    samples = list(_samples(PromptTexts(with_prompts)))
    inputs, labels = labelled(loaded.encoder, samples)
    optimizer = torch.optim.AdamW(loaded.model.model.language_model.parameters(), lr=3e-3)
    loaded.model.train()
    with one_thread():
        for _ in range(steps):
            loss = loaded.model(**inputs, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if loss < 0.003:
                break
    loaded.model.eval().save_pretrained(model)


@contextmanager
def one_thread():
    """Several threads would wait for each other where other tests run."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _samples(prompts):
    goals = [
        "Draw a cat.",
        "Add a red ball at the top left. Keep everything else unchanged.",
        "Paint a snowy meadow with a green tree in the center and a blue house at the right.",
    ]
    for side in (32, 96):
        white = EncodedImage.white((side, side))
        yield AgentQuery(prompts.quality(), (white,)), QUALITY
        for goal in goals:
            yield AgentQuery(prompts.semantics(goal), (white, white)), SEMANTICS


def _ignore_images(visual):
    """Make all images look the same, so that the answers hold for all of them."""
    for merger in (visual.merger, *visual.deepstack_merger_list):
        merger.linear_fc2.weight.data.zero_()
        merger.linear_fc2.bias.data.zero_()
