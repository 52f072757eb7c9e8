"""The tiny model's tokenizer: a byte-level BPE trained on the world's text.

It has the special tokens of Qwen3-VL, so that every tool accepts it. Fixed phrases of the agents'
answers are single tokens, so that a tiny model spends its decoding steps on what varies.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from inference.agent_prompts.formatting import PLAN_KEY, REFINE_KEY, SUCCESS_KEY
from inference.sketch_world.critic import FLAWS
from inference.sketch_world.object_catalog import COLOURS, PLACES
from inference.sketch_world.story_catalog import load_stories

from .pretraining_samples import request_words, sample_texts

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>"),
    *("<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
)
# Ordinary tokens, which `skip_special_tokens` does not remove.
THINKING = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
SCAFFOLD = (
    f'{{"{PLAN_KEY}": [{{"step_number": ',
    ', "step_name": "',
    '", "instruction": "',
    '", "prompt": "',
    '", "auxiliary_text": "',
    '", "auxiliary_text": null}',
    ', {"step_number": ',
    '"}, {"step_number": ',
    '"}]}',
    f'{{"{SUCCESS_KEY}": true, "{REFINE_KEY}": "',
    f'{{"{SUCCESS_KEY}": false, "{REFINE_KEY}": "',
)
PHRASES = (
    "Request:",
    "Goal:",
    "Wording:",
    "Steps given:",
    "The request is about",
    " My choices:",
    " =",
    " It takes",
    " Every picture gets a caption.",
    "Asked for:",
    "Background:",
    *(f"{place.capitalize()}:" for place in PLACES),
    ", see",
    *(f", {mark}.\n" for mark in ("right", "wrong", "same", "changed", *FLAWS)),
    "The step succeeded.",
    "The step failed.",
    " Keep everything else unchanged.",
)
CHAT_TEMPLATE = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.content is string %}{{- m.content }}{%- else %}{%- for c in m.content %}"
    "{%- if c.type == 'image' %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- elif c.type == 'video' %}{{- '<|vision_start|><|video_pad|><|vision_end|>' }}"
    "{%- else %}{{- c.text }}{%- endif %}{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
_SAMPLES = 4000
_REQUEST_WORD_COUNT = 60


def build_tokenizer(entries: int) -> "Qwen2Tokenizer":
    from transformers import Qwen2Tokenizer

    vocabulary, merges = _train_bpe(entries)
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=list(merges),  # type: ignore[arg-type]  # pairs, as tokenizer.json has them
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,  # type: ignore[arg-type]  # bytes are never unknown
        model_max_length=4096,
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    tokenizer.add_tokens([*THINKING, *TAGS, *SCAFFOLD, *PHRASES])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


@cache
def _train_bpe(entries: int) -> tuple[dict[str, int], tuple[tuple[str, str], ...]]:
    """Entries and merges of a byte-level BPE that splits text as Qwen's does."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = Qwen2Tokenizer().backend_tokenizer.pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=entries, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(world_text(), trainer)
    bpe = json.loads(tokenizer.to_str())["model"]
    return bpe["vocab"], tuple((first, second) for first, second in bpe["merges"])


def world_text() -> Iterator[str]:
    """Sentences of the world: its stories with filled slots, request words, texts of samples."""
    for story in load_stories().values():
        for values, _ in zip(story.all_values(), range(40), strict=False):
            for step in story.fill_steps(values):
                yield from (step.name, step.draw, step.say, step.tell)
        yield story.title
        yield from story.asks
    yield " ".join(COLOURS)
    for word in request_words():  # repeated, to be as frequent as the world's own words
        yield f"{word.capitalize()} {word}"
        yield f" {word}" * _REQUEST_WORD_COUNT
    for number in range(_SAMPLES):
        yield from sample_texts(number)
