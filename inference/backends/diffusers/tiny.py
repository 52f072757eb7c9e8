"""Pipelines of the real classes with random weights, small enough for a CPU."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

from schemas.yaml_config import read_yaml

WORDS = sorted(pre_tokenizers.ByteLevel.alphabet())
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'] if m['content'] is string else m['content'][0]['text'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Untrained layers attenuate their input: with this gain prompts and images matter.
GAIN = 1.5
PIPELINES: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_suffix(".yaml"))["pipelines"]


def build(pipeline: str, folder: Path) -> Path:
    """Save a pipeline of one of `PIPELINES` to `folder`."""
    import diffusers
    import torch

    torch.manual_seed(0)
    parts = {name: _part(content) for name, content in PIPELINES[pipeline].items()}
    built = getattr(diffusers, pipeline)(**parts)
    for part in (built.transformer, built.vae):
        for weights in part.parameters():
            if weights.dim() > 1:
                torch.nn.init.normal_(weights, std=GAIN / math.sqrt(weights[0].numel()))
    built.save_pretrained(folder)
    return folder


def _part(content: Any) -> Any:
    """A part of a pipeline, as tiny.yaml describes it."""
    import diffusers
    import transformers

    if isinstance(content, str):
        return _TEXT_PARTS[content]()
    if not isinstance(content, dict):
        return content
    name, settings = content["class"], {key: content[key] for key in content if key != "class"}
    if hasattr(diffusers, name):
        return getattr(diffusers, name)(**settings)
    kind = getattr(transformers, name)
    if "vision_config" in settings:
        names = ("vision_start", "vision_end", "image", "video")
        ids = chat_tokenizer().convert_tokens_to_ids(list(VISION))
        settings |= {f"{name}_token_id": token for name, token in zip(names, ids, strict=True)}
    return kind(kind.config_class(**settings))


def vision_processor() -> Any:
    """Few visual tokens for an image of any size."""
    import transformers

    size = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56}
    return transformers.Qwen2VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(size=size),
        tokenizer=chat_tokenizer(),
        video_processor=transformers.Qwen2VLVideoProcessor(),
    )


def grid_processor() -> Any:
    """A visual token for each 32x32 pixels, where latents of images take the tokens' places."""
    import transformers

    size = {"shortest_edge": 32 * 32, "longest_edge": 4096 * 4096}
    return transformers.Qwen3VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(size=size, patch_size=16),
        tokenizer=chat_tokenizer(),
        video_processor=transformers.Qwen3VLVideoProcessor(),
        chat_template=CHAT,
    )


def chat_tokenizer() -> Any:
    """A token per byte, and those of a chat with images."""
    import transformers

    return transformers.Qwen2TokenizerFast(  # type: ignore[attr-defined]
        vocab={word: place for place, word in enumerate(WORDS)},
        merges=[],
        additional_special_tokens=["<|im_start|>", "<|im_end|>", *VISION],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        chat_template=CHAT,
    )


def clip_tokenizer() -> Any:
    import transformers

    words = ["<|startoftext|>", "<|endoftext|>", *WORDS]
    return transformers.CLIPTokenizer(
        vocab={word: place for place, word in enumerate(words)}, merges=[], model_max_length=77
    )


def t5_tokenizer() -> Any:
    import transformers

    words = ["<pad>", "</s>", "<unk>", *WORDS]
    model = models.Unigram([(word, -1.0) for word in words], unk_id=2)
    words_only = Tokenizer(model)
    return transformers.T5TokenizerFast(  # type: ignore[attr-defined]
        tokenizer_object=words_only, extra_ids=0
    )


_TEXT_PARTS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (vision_processor, grid_processor, chat_tokenizer, clip_tokenizer, t5_tokenizer)
}
