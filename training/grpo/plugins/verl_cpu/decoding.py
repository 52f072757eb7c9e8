"""Samples answers of a vision-language model in batches, as backend `checkpoint` decodes them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

# Loaded by its path: our packages are not importable in verl's environment.
_DECODER = Path(__file__).parents[4] / "inference" / "backends" / "checkpoint" / "decoding.py"


def _load_decode() -> Callable[..., list[list[int]]]:
    spec = spec_from_file_location("interleave_decoding", _DECODER)
    assert spec and spec.loader
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    decode: Callable[..., list[list[int]]] = module.decode
    return decode


_decode = _load_decode()


@dataclass(frozen=True)
class Request:
    """A requested answer; images as the image processor takes them."""

    prompt: tuple[int, ...]
    images: tuple[Any, ...]
    temperature: float
    max_tokens: int


@dataclass
class DecodedAnswer:
    """Tokens of an answer, and the log-probability with which each was sampled."""

    tokens: list[int]
    log_probs: list[float]


@dataclass(frozen=True)
class Vocabulary:
    """Special token ids; `banned` ones are never sampled (they would stand for images)."""

    image: int
    pad: int
    ends: frozenset[int]
    banned: tuple[int, ...]


@dataclass(frozen=True)
class Decoder:
    """A model with the image processor of its prompts."""

    model: Any
    image_processor: Any
    vocabulary: Vocabulary

    def decode(
        self, requests: Sequence[Request], seed: int, on_end: Callable[[int, DecodedAnswer], None]
    ) -> None:
        """Answer every request; calls `on_end(i, answer)` as soon as answer `i` has ended."""
        temperatures = [request.temperature for request in requests]
        sampler = _TemperatureSampler(temperatures, self.vocabulary.banned, seed)

        def deliver(row: int, tokens: list[int]) -> None:
            on_end(row, DecodedAnswer(tokens, sampler.log_probs[row][: len(tokens)]))

        _decode(
            self.model,
            self._inputs(requests),
            [request.max_tokens for request in requests],
            list(self.vocabulary.ends),
            sampler,
            on_end=deliver,
        )

    def _inputs(self, prompts: Sequence[Request]) -> dict[str, Tensor]:
        """Model inputs of some prompts, padded on the left to (prompts, longest)."""
        pad = partial(pad_sequence, batch_first=True, padding_side="left")
        tokens = [torch.tensor(p.prompt) for p in prompts]
        ids = pad(tokens, padding_value=self.vocabulary.pad)
        inputs = {"input_ids": ids, "attention_mask": pad(list(map(torch.ones_like, tokens)))}
        inputs["mm_token_type_ids"] = (ids == self.vocabulary.image).int()
        images = [image for p in prompts for image in p.images]
        if images:
            inputs |= self.image_processor(images=images, return_tensors="pt")
        return inputs


class _TemperatureSampler:
    """Samples at each row's temperature (0: greedily); records log-probabilities by answer, also
    of tokens after its end."""

    def __init__(self, temperatures: Sequence[float], banned: tuple[int, ...], seed: int) -> None:
        self.log_probs: list[list[float]] = [[] for _ in temperatures]
        self._temperatures = torch.tensor(temperatures)[:, None]
        self._banned = list(banned)
        self._generator = torch.Generator().manual_seed(seed)

    def choose(self, logits: Tensor) -> Tensor:
        logits = logits.float()
        logits[:, self._banned] = -torch.inf
        temperatures = self._temperatures
        log_probs = (logits / temperatures.where(temperatures > 0, 1.0)).log_softmax(-1)
        sampled = torch.multinomial(log_probs.exp(), 1, generator=self._generator)
        tokens = sampled.where(temperatures > 0, log_probs.argmax(-1, keepdim=True))
        for known, (log_prob,) in zip(
            self.log_probs, log_probs.gather(-1, tokens).tolist(), strict=True
        ):
            known.append(log_prob)
        return tokens[:, 0]
