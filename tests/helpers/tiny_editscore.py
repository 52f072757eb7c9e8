"""Tiny edit-reward models: the classes that EditScore is made of, with random weights or taught."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from inference.backends.checkpoint.encoding import AgentQuery
from inference.backends.editscore.loading import load
from inference.backends.editscore.prompts import prompt_texts
from inference.backends.editscore.settings import EditScoreSettings
from training.base_model.architecture import build_untrained
from training.base_model.settings import Architecture, BaseModelSettings
from warehouse import EncodedImage

SMALL = Architecture(hidden=96, layers=2, feed_forward=128, vision_hidden=64)
SEMANTICS = '{"reasoning": "It is there.", "score": [20, 15]}'
QUALITY = '{"reasoning": "It is clean.", "score": [25, 10]}'


def tiny_model(folder: Path, layers: int = 2) -> Path:
    """A Qwen3-VL with random weights."""
    sizes = SMALL.model_copy(update={"layers": layers})
    build_untrained(folder, BaseModelSettings(architecture=sizes))
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


def words(folder: Path) -> Path:
    """A short wording of the two questions."""
    folder.mkdir()
    (folder / "semantics.txt").write_text("Is <instruction> done?")
    (folder / "quality.txt").write_text("Is it clean?")
    return folder


def settings(model: Path, **more: object) -> EditScoreSettings:
    given = {"model": str(model), "adapter": None, "device": "cpu", "samples": 2}
    return EditScoreSettings(**(given | {"max_new_tokens": 40, "temperature": 0.1} | more))


def teach(model: Path, prompts: Path, steps: int = 120) -> None:
    """Train a model until it gives every attempt the same marks, by heart and blindly."""
    import torch

    asked = settings(model, prompts=prompts)
    loaded = load(asked, "to be taught")
    _blind(loaded.model.model.visual)
    lessons = list(_lessons(prompt_texts(asked)))
    optimizer = torch.optim.AdamW(loaded.model.model.language_model.parameters(), lr=3e-3)
    loaded.model.train()
    with one_thread():
        for _ in range(steps):
            loss = _loss(loaded, lessons)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if loss < 0.003:
                break
    loaded.model.eval().save_pretrained(model)


@contextmanager
def one_thread():
    """More of them wait for each other where other tests are at work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _lessons(said):
    goals = [
        "Draw a cat.",
        "Add a red ball at the top left. Keep everything else unchanged.",
        "Paint a snowy meadow with a green tree in the center and a blue house at the right.",
    ]
    for side in (32, 96):
        white = EncodedImage.white((side, side))
        yield AgentQuery(said.quality(), (white,)), QUALITY
        for goal in goals:
            yield AgentQuery(said.semantics(goal), (white, white)), SEMANTICS


def _blind(visual):
    """Let every picture look the same, so that what was learned holds for all of them."""
    for merger in (visual.merger, *visual.deepstack_merger_list):
        merger.linear_fc2.weight.data.zero_()
        merger.linear_fc2.bias.data.zero_()


def _loss(loaded, lessons):
    import torch

    prompts = [loaded.encoder.encode(question) for question, _ in lessons]
    told = [_tokens(loaded, answer) for _, answer in lessons]
    whole = [replace(p, tokens=[*p.tokens, *t]) for p, t in zip(prompts, told, strict=True)]
    batch = loaded.encoder.pad(whole, "cpu")  # ends aligned
    width = batch.inputs["input_ids"].shape[1]
    labels = torch.tensor([[-100] * (width - len(answer)) + answer for answer in told])
    return loaded.model(**batch.inputs, labels=labels).loss


def _tokens(loaded, answer):
    return loaded.encoder._tokenizer.encode(f"{answer}<|im_end|>", add_special_tokens=False)
