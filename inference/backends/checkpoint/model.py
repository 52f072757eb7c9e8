"""A checkpoint in memory that answers queries in batches."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

from schemas import BadImageError
from warehouse.storage import first_line

from ...roles import UnusableAnswerError
from ..model_files import device_and_dtype
from .decoding import Sampling, SeededSampler, decode
from .encoding import AgentQuery, Encoder, Prompt
from .manifest import CheckpointError, read_manifest
from .pixels import resize_to_pixels
from .settings import CheckpointSettings

# As many as a process needs at once: a planner and a critic.
_CACHED_MODELS = 2


@dataclass(frozen=True)
class Completion:
    """An answer; `is_complete` is false where it was cut off at the token limit."""

    text: str
    input_tokens: int
    output_tokens: int
    is_complete: bool


class BatchLimits(Protocol):
    """How many queries are answered together."""

    @property
    def batch(self) -> int:
        """The most queries of a batch."""

    @property
    def batch_tokens(self) -> int:
        """The most tokens of a batch, prompts and longest answers together."""


@dataclass(frozen=True)
class LoadedModel:
    """A model and its encoder; `lock` lets one thread at a time use them."""

    identity: str
    encoder: Encoder
    model: Any
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def stops(self) -> list[int]:
        """Ids of tokens that end an answer."""
        ends = self.model.generation_config.eos_token_id
        return ends if isinstance(ends, list) else [ends]

    @property
    def max_length(self) -> int:
        """The most tokens of a prompt and its answer."""
        return int(self.model.config.text_config.max_position_embeddings)


class CheckpointModel:
    """Answers queries with one model, from any thread. See `load_checkpoint_model`.

    Args:
        sampling: how answers are sampled; None: greedily.
    """

    def __init__(
        self, loaded: LoadedModel, limits: BatchLimits, sampling: Sampling | None = None
    ) -> None:
        self._loaded, self._limits, self._sampling = loaded, limits, sampling

    def answer(self, queries: Sequence[AgentQuery]) -> list[str]:
        """The texts of all answers, in order.

        Raises:
            BadImageError: an image cannot be decoded.
            UnusableAnswerError: a query is longer than the model can read.
        """
        completions = []
        for completion in self.attempt(queries):
            if isinstance(completion, Exception):
                raise completion
            completions.append(completion.text)
        return completions

    def attempt(
        self, queries: Sequence[AgentQuery], is_cancelled: Callable[[], bool] = lambda: False
    ) -> list[Completion | Exception]:
        """The answer to each query, or the error that it alone causes.

        Args:
            is_cancelled: checked before every token; true ends all answers where they are.
        """
        with self._loaded.lock:
            encoded = [self._encode(query) for query in queries]
            prompts = {i: prompt for i, prompt in enumerate(encoded) if isinstance(prompt, Prompt)}
            completions: dict[int, Completion | Exception] = {}
            for batch in _batches(prompts, self._limits):
                completions |= self._complete({i: prompts[i] for i in batch}, is_cancelled)
        errors = {i: error for i, error in enumerate(encoded) if isinstance(error, Exception)}
        return [(completions | errors)[i] for i in range(len(queries))]

    def _encode(self, query: AgentQuery) -> Prompt | Exception:
        try:
            prompt = self._loaded.encoder.encode(query)
        except BadImageError as error:
            return error
        if prompt.max_length > self._loaded.max_length:
            return UnusableAnswerError(
                f"a question of {len(prompt.tokens)} tokens and an answer of {prompt.limit} are "
                f"more than the {self._loaded.max_length} that {self._loaded.identity} can handle"
            )
        return prompt

    def _complete(
        self, prompts: Mapping[int, Prompt], is_cancelled: Callable[[], bool]
    ) -> dict[int, Completion]:
        model, encoder, stops = self._loaded.model, self._loaded.encoder, self._loaded.stops
        batch = encoder.pad(list(prompts.values()), model.device)
        sampler = None
        if self._sampling:
            max_tokens = max(batch.limits)
            sampler = SeededSampler(self._sampling, batch.seeds, max_tokens, model.device)
        answers = decode(
            model, batch.inputs, batch.limits, stops, sampler, is_cancelled=is_cancelled
        )
        return {
            number: _completion(encoder, prompt, [t for t in tokens if t not in stops])
            for (number, prompt), tokens in zip(prompts.items(), answers, strict=True)
        }


def load_checkpoint_model(
    folder: Path, settings: CheckpointSettings | None = None
) -> CheckpointModel:
    """The model in a checkpoint's folder; a process caches the last two.

    Raises:
        CheckpointError: the folder is no checkpoint, or transformers cannot load it.
    """
    settings = settings or CheckpointSettings()
    manifest = read_manifest(folder)
    return CheckpointModel(_load(folder.absolute(), manifest.identity, settings.device), settings)


@lru_cache(maxsize=_CACHED_MODELS)
def _load(folder: Path, identity: str, device: str) -> LoadedModel:
    device, dtype = device_and_dtype(device)
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    manifest = read_manifest(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        image_processor = AutoImageProcessor.from_pretrained(folder)
        model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype)
        model.to(device).eval()
    except Exception as error:  # transformers, safetensors and torch raise errors of all kinds
        raise CheckpointError(
            f"checkpoint {folder} cannot be loaded: {first_line(error)}"
        ) from error
    resize = partial(
        resize_to_pixels, least=manifest.image_min_pixels, most=manifest.image_max_pixels
    )
    return LoadedModel(identity, Encoder(tokenizer, image_processor, resize), model)


def _batches(prompts: Mapping[int, Prompt], limits: BatchLimits) -> Iterator[list[int]]:
    """Numbers of prompts that are answered together: of similar length, for little padding."""
    batch: list[int] = []
    for number in sorted(prompts, key=lambda number: prompts[number].max_length):
        tokens = prompts[number].max_length * (len(batch) + 1)  # the newest is the longest
        if batch and (len(batch) == limits.batch or tokens > limits.batch_tokens):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _completion(encoder: Encoder, prompt: Prompt, tokens: Sequence[int]) -> Completion:
    is_complete = len(tokens) < prompt.limit
    return Completion(encoder.decode(tokens), len(prompt.tokens), len(tokens), is_complete)
