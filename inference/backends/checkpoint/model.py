"""Models in memory that answer queries in batches."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from schemas import BadImageError

from ...calls.batching import Batcher
from ...calls.retry import report_usage
from ...roles import UnusableAnswerError
from .. import torch_cpu_shim
from ..providers.structured import CompletionResult
from .constrained import Forms, FormSampler
from .decoding import Sampler, Sampling, SeededSampler, decode
from .encoding import AgentQuery, Decoding, Encoder, Prompt, PromptLayout, Resize

_TOP_K = 50  # the default of transformers
_GATHER_SECONDS = 0.01  # how long the first query of a batch waits for others


@dataclass(frozen=True)
class LoadedModel:
    """A model and its encoder; `lock` lets one thread at a time use them."""

    identity: str
    encoder: Encoder
    model: Any
    lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def forms(self) -> Forms:
        """Forms that answers can be made to have."""
        return Forms.of(self.encoder.tokenizer)

    @property
    def stops(self) -> list[int]:
        """Ids of tokens that end an answer."""
        ends = self.model.generation_config.eos_token_id
        return ends if isinstance(ends, list) else [ends]

    def sampling(self, decoding: Decoding) -> Sampling | None:
        """How answers are sampled; None: they are greedy."""
        config = self.model.generation_config
        if decoding == "greedy" or (decoding == "own" and not config.do_sample):
            return None
        return Sampling(config.temperature or 1.0, config.top_p or 1.0, config.top_k or _TOP_K)

    @property
    def max_length(self) -> int:
        """The most tokens of a prompt and its answer."""
        return int(self.model.config.text_config.max_position_embeddings)


@dataclass(eq=False)
class BatchedModel:
    """Answers queries with one model in batches, from any thread; loads it for the first query.

    `batch` and `batch_tokens` are as in `CheckpointBackend`. `sampling` is that of all answers;
    None: each query's `decoding`.
    """

    load: Callable[[], LoadedModel]
    batch: int
    batch_tokens: int
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        self._batcher = Batcher(self.attempt, self.batch, _GATHER_SECONDS)

    @cached_property
    def loaded(self) -> LoadedModel:
        return self.load()

    async def complete(self, query: AgentQuery) -> CompletionResult:
        """The answer to a query.

        Raises:
            BadImageError: an image cannot be decoded.
            UnusableAnswerError: the query is longer than the model can read.
        """
        completion = await self._batcher.submit(query)
        report_usage(
            input_tokens=completion.input_tokens,
            output_tokens=completion.output_tokens,
            cost_usd=0.0,
        )
        return completion

    def attempt(
        self, queries: Sequence[AgentQuery], is_cancelled: Callable[[], bool] = lambda: False
    ) -> list[CompletionResult | Exception]:
        """The answer to each query, or the error that it alone causes; see `decode`."""
        with self.loaded.lock:
            results: dict[int, CompletionResult | Exception] = {}
            prompts: dict[int, Prompt] = {}
            for number, query in enumerate(queries):
                try:
                    prompts[number] = self._encode(query)
                except (BadImageError, UnusableAnswerError) as error:
                    results[number] = error
            for batch in self._batches(prompts):
                completions = self._complete([prompts[i] for i in batch], is_cancelled)
                results |= zip(batch, completions, strict=True)
        return [results[number] for number in range(len(queries))]

    def _encode(self, query: AgentQuery) -> Prompt:
        prompt = self.loaded.encoder.encode(query)
        if prompt.max_length > self.loaded.max_length:
            raise UnusableAnswerError(
                f"a question of {len(prompt.tokens)} tokens and an answer of "
                f"{query.max_new_tokens} are more than the {self.loaded.max_length} that "
                f"{self.loaded.identity} can handle"
            )
        return prompt

    def _batches(self, prompts: Mapping[int, Prompt]) -> Iterator[list[int]]:
        """Numbers of prompts that are answered together: decoded alike, and of similar length, for
        little padding."""
        by_decoding: defaultdict[object, list[int]] = defaultdict(list)
        for number, prompt in prompts.items():
            by_decoding[self._sampling_of(prompt), prompt.query.form].append(number)
        for numbers in by_decoding.values():
            batch: list[int] = []
            for number in sorted(numbers, key=lambda number: prompts[number].max_length):
                tokens = prompts[number].max_length * (len(batch) + 1)  # the newest is the longest
                if batch and (len(batch) == self.batch or tokens > self.batch_tokens):
                    yield batch
                    batch = []
                batch.append(number)
            yield batch

    def _sampling_of(self, prompt: Prompt) -> Sampling | None:
        return self.sampling or self.loaded.sampling(prompt.query.decoding)

    def _complete(
        self, prompts: Sequence[Prompt], is_cancelled: Callable[[], bool]
    ) -> Iterator[CompletionResult]:
        model, encoder, stops = self.loaded.model, self.loaded.encoder, self.loaded.stops
        limits = [prompt.query.max_new_tokens for prompt in prompts]
        sampler: Sampler | None = None
        if form := prompts[0].query.form:
            forms = [self.loaded.forms.open(form) for _ in prompts]
            sampler = FormSampler(forms, stops[0])
        elif sampling := self._sampling_of(prompts[0]):
            seeds = [prompt.query.seed for prompt in prompts]
            sampler = SeededSampler(sampling, seeds, max(limits), model.device)
        inputs = encoder.pad(prompts, model.device)
        answers = decode(model, inputs, limits, stops, sampler, is_cancelled=is_cancelled)
        for prompt, limit, answer in zip(prompts, limits, answers, strict=True):
            tokens = [token for token in answer if token not in stops]
            yield CompletionResult(
                encoder.decode(tokens),
                is_complete=len(tokens) < limit,
                input_tokens=len(prompt.tokens),
                output_tokens=len(tokens),
            )


def load_weights(model: str | Path, **options: Any) -> Any:
    """A vision-language model of transformers, by Hugging Face id or folder."""
    torch_cpu_shim.install()
    from transformers import AutoModelForImageTextToText
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    return AutoModelForImageTextToText.from_pretrained(model, **options)


def load_encoder(
    model: str | Path,
    revision: str | None,
    layout: PromptLayout,
    resize: Resize,
    resize_many: Resize | None = None,
) -> Encoder:
    """The encoder of a model, by Hugging Face id or folder."""
    from transformers import AutoImageProcessor, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, revision=revision)
    image_processor = AutoImageProcessor.from_pretrained(model, revision=revision)
    return Encoder(tokenizer, image_processor, resize, layout, resize_many)
