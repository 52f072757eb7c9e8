"""A checkpoint in memory, answering questions in batches."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

from schemas import BadImageError

from ...roles import UnusableAnswerError
from .. import torch_cpu_shim
from .decoding import decode
from .encoding import AgentQuery, Encoder, Prompt
from .manifest import CheckpointError, read_manifest
from .pixels import resize_to_pixels
from .sampling import Sampling
from .settings import CheckpointSettings

# As many as a process needs at once: a planner and a critic.
_LOADED_AT_ONCE = 2


@dataclass(frozen=True)
class Completion:
    """What the model wrote, how many tokens it read and wrote, and whether it came to its end."""

    text: str
    input_tokens: int
    output_tokens: int
    whole: bool


class BatchLimits(Protocol):
    """How many questions are answered together."""

    @property
    def batch(self) -> int:
        """Questions at once, at most."""

    @property
    def batch_tokens(self) -> int:
        """Tokens at once, prompts and longest answers together."""


@dataclass(frozen=True)
class LoadedModel:
    """A model with what belongs to it; `in_use` lets one thread at a time ask it."""

    identity: str
    encoder: Encoder
    model: Any
    in_use: threading.Lock = field(default_factory=threading.Lock)

    @property
    def stops(self) -> list[int]:
        ends = self.model.generation_config.eos_token_id
        return ends if isinstance(ends, list) else [ends]

    @property
    def longest(self) -> int:
        """Tokens that the model can tell apart by their places."""
        return int(self.model.config.text_config.max_position_embeddings)


class CheckpointModel:
    """Answers questions with one model; any thread may ask. See `load_checkpoint_model`.

    Args:
        sampling: how answers are drawn; None: the likeliest tokens.
    """

    def __init__(
        self, loaded: LoadedModel, batches: BatchLimits, sampling: Sampling | None = None
    ) -> None:
        self._loaded, self._batches, self._sampling = loaded, batches, sampling

    def answer(self, questions: Sequence[AgentQuery]) -> list[str]:
        """The answers to all questions, in their order.

        Raises:
            BadImageError: a picture cannot be decoded.
            BadAnswer: a question is longer than the model can read.
        """
        return [_unless_failed(answer).text for answer in self.attempt(questions)]

    def attempt(
        self, questions: Sequence[AgentQuery], given_up: Callable[[], bool] = lambda: False
    ) -> list[Completion | Exception]:
        """The answer to each question, or the error that one of them alone is to blame for.

        Args:
            given_up: asked before every token; true ends all answers where they are.
        """
        with self._loaded.in_use:
            read = {place: self._read(question) for place, question in enumerate(questions)}
            prompts = {place: r for place, r in read.items() if isinstance(r, Prompt)}
            answers: dict[int, Completion | Exception] = {}
            for batch in _batches(prompts, self._batches):
                answers |= self._write({place: prompts[place] for place in batch}, given_up)
        failed = {place: r for place, r in read.items() if isinstance(r, Exception)}
        return [(answers | failed)[place] for place in range(len(questions))]

    def _read(self, question: AgentQuery) -> Prompt | Exception:
        try:
            return self._prompt(question)
        except (BadImageError, UnusableAnswerError) as error:
            return error

    def _prompt(self, question: AgentQuery) -> Prompt:
        prompt = self._loaded.encoder.encode(question)
        if prompt.room > self._loaded.longest:
            raise UnusableAnswerError(
                f"a question of {len(prompt.tokens)} tokens and an answer of {prompt.limit} are "
                f"more than the {self._loaded.longest} that {self._loaded.identity} can handle"
            )
        return prompt

    def _write(
        self, prompts: dict[int, Prompt], given_up: Callable[[], bool]
    ) -> dict[int, Completion]:
        loaded = self._loaded
        batch = loaded.encoder.pad(list(prompts.values()), loaded.model.device)
        written = decode(loaded.model, batch, loaded.stops, given_up, self._sampling)
        return {
            place: _answer(loaded.encoder.decode(tokens), tokens, prompt)
            for (place, prompt), tokens in zip(prompts.items(), written, strict=True)
        }


def load_checkpoint_model(
    folder: Path, settings: CheckpointSettings | None = None
) -> CheckpointModel:
    """An agent of a checkpoint's folder; a process keeps the weights of the last two.

    Raises:
        CheckpointError: the folder is no checkpoint, or transformers cannot load it.
    """
    settings = settings or CheckpointSettings()
    manifest = read_manifest(folder)
    return CheckpointModel(_load(folder.absolute(), manifest.identity, settings.device), settings)


@lru_cache(maxsize=_LOADED_AT_ONCE)
def _load(folder: Path, identity: str, device: str) -> LoadedModel:
    torch_cpu_shim.install()
    import torch
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    manifest = read_manifest(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        images = AutoImageProcessor.from_pretrained(folder)
        model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype)
        model.to(device).eval()
    except Exception as error:  # transformers, safetensors and torch raise errors of all kinds
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise CheckpointError(f"checkpoint {folder} cannot be loaded: {reason[0]}") from error
    fit = partial(resize_to_pixels, least=manifest.image_min_pixels, most=manifest.image_max_pixels)
    return LoadedModel(identity, Encoder(tokenizer, images, fit), model)


def _batches(prompts: dict[int, Prompt], most: BatchLimits) -> Iterator[list[int]]:
    """Places of prompts that are answered together: of like length, so that little is padded."""
    batch: list[int] = []
    for place in sorted(prompts, key=lambda place: prompts[place].room):
        tokens = prompts[place].room * (len(batch) + 1)  # the newest is the longest
        if batch and (len(batch) == most.batch or tokens > most.batch_tokens):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _answer(text: str, tokens: Sequence[int], prompt: Prompt) -> Completion:
    return Completion(text, len(prompt.tokens), len(tokens), whole=len(tokens) < prompt.limit)


def _unless_failed(answer: Completion | Exception) -> Completion:
    if isinstance(answer, Exception):
        raise answer
    return answer
