"""A Qwen3-VL like the packaged base model, with random weights."""

import shutil
from dataclasses import replace
from pathlib import Path

from training.base_model import PACKAGED_MODEL


def build_untrained(
    folder: Path, *, hidden=192, layers=5, feed_forward=512, vision_hidden=128, seed=0
) -> None:
    """Write it to `folder`, with tokenizer and processor; the sizes are the packaged model's."""
    from inference.backends import torch_cpu_shim

    torch_cpu_shim.install()
    import torch
    from transformers import AutoConfig, GenerationConfig, Qwen3VLForConditionalGeneration

    config = AutoConfig.from_pretrained(PACKAGED_MODEL)
    text, vision = config.text_config, config.vision_config
    heads = hidden // text.head_dim
    text.update(
        {
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "intermediate_size": feed_forward,
            "num_attention_heads": heads,
            "num_key_value_heads": max(1, heads // 2),
        }
    )
    vision.update(
        {
            "hidden_size": vision_hidden,
            "intermediate_size": 2 * vision_hidden,
            "num_heads": vision_hidden // 32,
            "out_hidden_size": hidden,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(config).float()
    model.generation_config = GenerationConfig.from_pretrained(PACKAGED_MODEL)
    model.save_pretrained(folder)
    for path in PACKAGED_MODEL.iterdir():
        if path.name.startswith(("tokenizer", "processor", "chat_template")):
            shutil.copy2(path, folder)


def labelled(encoder, samples):
    """Inputs of pairs of a query and an answer, and labels of the answers."""
    import torch

    tokenizer = encoder.tokenizer
    answers = [tokenizer.encode(f"{a}<|im_end|>", add_special_tokens=False) for _, a in samples]
    prompts = [encoder.encode(query) for query, _ in samples]
    pairs = zip(prompts, answers, strict=True)
    whole = [replace(prompt, tokens=[*prompt.tokens, *answer]) for prompt, answer in pairs]
    inputs = encoder.pad(whole, "cpu")  # ends aligned
    width = inputs["input_ids"].shape[1]
    return inputs, torch.tensor([[-100] * (width - len(each)) + each for each in answers])
