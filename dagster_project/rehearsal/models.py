"""Tiny models of the classes that a profile names, with random weights, made on the spot."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.backends.diffusers.registry import GeneratorModel, load_registry
from inference.backends.model_files import cached_file
from schemas import FoundryError
from training.base_model import PACKAGED_MODEL

from .provider import json_answers, tagged_answers

# The class that trainers and servers of agents are written for.
AGENT_CLASS = "Qwen3VLForConditionalGeneration"
_KNOWN_AGENTS = ("qwen3-vl", "interleavethinker/")  # parts of names of models of this class
HUB_ID = re.compile(r"[^/]+/[^/]+")
_CONTEXT, _LAYERS = 32_768, 2
# A constant in the first of all hidden dimensions, far above the noise of the others, from which
# the next token follows: an answer, and after it the end. Without a schema the free answers win.
_CONSTANT, _ANSWER, _FREE_ANSWER = 4.0, 4.0, 6.0


@dataclass(frozen=True)
class TinyModel:
    """A model that was made.

    Args:
        note: how it differs from what it stands for, besides its size; empty: not at all.
    """

    folder: Path
    kind: str
    note: str = ""


def tiny_agent(
    folder: Path, model: str, revision: str | None = None, free_answers: Sequence[str] | None = None
) -> TinyModel:
    """A Qwen3-VL, in whose vocabulary some whole answers are single tokens, which it prefers.

    Args:
        model: what it stands for.
        free_answers: those without a schema; None: those of trained agents.
    """
    _build_agent(folder, tagged_answers() if free_answers is None else free_answers)
    kind = _class_of(model, revision)
    note = "" if kind == AGENT_CLASS else f"another class than {kind}, of which no tiny one is made"
    return TinyModel(folder, AGENT_CLASS, note)


def tiny_generator(folder: Path, model: str, registry: Path | None = None) -> TinyModel:
    """A pipeline of the class that a name of the registry, or a pipeline's folder, has.

    Raises:
        FoundryError: no tiny pipeline of its class can be made.
    """
    kind = _pipeline_of(model, registry)
    from inference.backends import torch_cpu_shim

    torch_cpu_shim.install()  # before diffusers is imported
    from inference.backends.diffusers import tiny

    if kind not in tiny.PIPELINES:
        known = ", ".join(tiny.PIPELINES)
        raise FoundryError(f"no tiny {kind} can be made for {model}; there are: {known}")
    return TinyModel(tiny.build(kind, folder), kind)


def registered_generator(model: str, registry: Path | None = None) -> GeneratorModel | None:
    """The entry of a name in the registry; None: it has none."""
    return load_registry(registry).models.get(model)


def _pipeline_of(model: str, registry: Path | None) -> str:
    entry = registered_generator(model, registry)
    if entry and entry.pipeline:
        return entry.pipeline
    index = Path(model).expanduser() / "model_index.json"
    if index.is_file():
        return str(json.loads(index.read_text("utf-8"))["_class_name"])
    raise FoundryError(f"{model} is neither a pipeline of the registry nor a pipeline's folder")


def _class_of(model: str, revision: str | None) -> str:
    """By its config.json where it is here, else by its name; ours have none of a hub's."""
    is_named = Path(model).is_dir() or HUB_ID.fullmatch(model)
    if is_named and (config := cached_file(model, revision, "config.json")):
        return str(json.loads(config.read_text("utf-8"))["architectures"][0])
    is_known = any(name in model.lower() for name in _KNOWN_AGENTS)
    return AGENT_CLASS if not is_named or is_known else model


def _build_agent(folder: Path, free_answers: Sequence[str]) -> None:
    from inference.backends import torch_cpu_shim

    torch_cpu_shim.install()  # before transformers is imported
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForImageTextToText,
        AutoProcessor,
        GenerationConfig,
    )
    from transformers.utils import logging

    logging.disable_progress_bar()
    processor: Any = AutoProcessor.from_pretrained(PACKAGED_MODEL)
    tokenizer, schema_answers = processor.tokenizer, json_answers()
    tokenizer.add_tokens([*schema_answers, *free_answers])
    tokenizer.model_max_length = _CONTEXT
    config = AutoConfig.from_pretrained(PACKAGED_MODEL)
    text = config.text_config
    text.num_hidden_layers, text.max_position_embeddings = _LAYERS, _CONTEXT
    text.vocab_size = -(-len(tokenizer) // 64) * 64
    config.tie_word_embeddings = text.tie_word_embeddings = False
    torch.manual_seed(0)
    model: Any = AutoModelForImageTextToText.from_config(config)
    ids = [tokenizer.convert_tokens_to_ids(list(texts)) for texts in (schema_answers, free_answers)]
    embeddings, head = model.get_input_embeddings().weight, model.lm_head.weight
    with torch.no_grad():
        embeddings[:, 0] = _CONSTANT
        embeddings[[*ids[0], *ids[1]], 0] = -_CONSTANT
        head[:, 0] = 0
        head[ids[0], 0], head[ids[1], 0] = _ANSWER, _FREE_ANSWER
        head[tokenizer.convert_tokens_to_ids("<|im_end|>"), 0] = -_ANSWER
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=ends[1])
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
