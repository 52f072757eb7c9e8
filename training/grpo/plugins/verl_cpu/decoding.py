"""Samples many answers of one vision-language model at once, each handed over when it ends.

Requests for the same prompt share one forward pass over it, pictures included; answers that have
ended leave the batch, so that its cost follows the tokens that are still wanted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# Ended rows are left behind when they are this share of the batch: it costs a copy of the cache.
_COMPACT_AT = 0.25


@dataclass(frozen=True)
class Request:
    """One answer that is wanted; pictures as the processor's pixels are made from them."""

    prompt: tuple[int, ...]
    pictures: tuple[Any, ...]
    temperature: float
    max_tokens: int

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for requests about the same prompt and pictures."""
        return self.prompt, *((p.size, p.tobytes()) for p in self.pictures)


@dataclass
class DecodedAnswer:
    """Tokens of an answer, and the log-probability with which each was drawn."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Vocabulary:
    """Token ids with a meaning; `banned` are never sampled (they would stand for pictures)."""

    image: int
    pad: int
    ends: frozenset[int]
    banned: tuple[int, ...]


Ended = Callable[[int, DecodedAnswer], None]


class Decoder:
    """A model with the image processor of its prompts."""

    def __init__(self, model: Any, image_processor: Any, vocabulary: Vocabulary) -> None:
        self._model = model
        self._images = image_processor
        self._vocabulary = vocabulary

    @torch.no_grad()
    def decode(self, requests: Sequence[Request], seed: int, ended: Ended) -> None:
        """Answer every request; `ended(i, answer)` as soon as request `i` has its answer."""
        batch = self._prefilled(requests)
        draws = torch.Generator().manual_seed(seed)
        while batch.rows:
            tokens, log_probs = self._draw(batch, draws)
            for index in batch.append(tokens, log_probs, self._vocabulary.ends):
                ended(index, batch.answers[index])
            batch.compact()
            if batch.rows:
                self._forward(batch)

    def _prefilled(self, requests: Sequence[Request]) -> "_Batch":
        """The batch after one forward pass over every distinct prompt."""
        prompts = list({r.key: r for r in requests}.values())
        place = {prompt.key: i for i, prompt in enumerate(prompts)}
        owner = torch.tensor([place[r.key] for r in requests])
        inputs = self._inputs(prompts)
        positions, _ = self._model.model.get_rope_index(
            **{k: v for k, v in inputs.items() if k != "pixel_values"}
        )
        output = self._model(**inputs, position_ids=positions, use_cache=True, logits_to_keep=1)
        output.past_key_values.batch_select_indices(owner)
        return _Batch(
            requests=requests,
            cache=output.past_key_values,
            mask=inputs["attention_mask"][owner],
            position=positions.amax(dim=(0, 2))[owner] + 1,
            logits=output.logits[owner, -1],
        )

    def _inputs(self, prompts: Sequence[Request]) -> dict[str, Tensor]:
        """Model inputs of some prompts, padded on the left to (prompts, longest)."""
        longest = max(len(p.prompt) for p in prompts)
        pad = self._vocabulary.pad
        ids = torch.tensor([[pad] * (longest - len(p.prompt)) + [*p.prompt] for p in prompts])
        real = torch.tensor(
            [[0] * (longest - len(p.prompt)) + [1] * len(p.prompt) for p in prompts]
        )
        inputs = {"input_ids": ids, "attention_mask": real}
        inputs["mm_token_type_ids"] = (ids == self._vocabulary.image).int()
        pictures = [picture for p in prompts for picture in p.pictures]
        if pictures:
            inputs |= self._images(images=pictures, return_tensors="pt")
        return inputs

    def _draw(self, batch: "_Batch", draws: torch.Generator) -> tuple[Tensor, Tensor]:
        """A token for each row, and its log-probability at the row's temperature."""
        logits = batch.logits.float()
        logits[:, list(self._vocabulary.banned)] = -torch.inf
        heat = batch.temperature[:, None]
        log_probs = (logits / heat.where(heat > 0, 1.0)).log_softmax(-1)
        sampled = torch.multinomial(log_probs.exp(), 1, generator=draws)
        tokens = sampled.where(heat > 0, log_probs.argmax(-1, keepdim=True))
        return tokens[:, 0], log_probs.gather(-1, tokens)[:, 0]

    def _forward(self, batch: "_Batch") -> None:
        """Let the model read the rows' newest tokens."""
        output = self._model(
            input_ids=batch.newest[:, None],
            attention_mask=batch.mask,
            position_ids=batch.position.expand(3, -1)[..., None],
            past_key_values=batch.cache,
            use_cache=True,
        )
        batch.logits = output.logits[:, -1]
        batch.position = batch.position + 1


class _Batch:
    """Answers that are being written: row `i` of every tensor writes for request `rows[i]`.

    A row whose answer has ended goes on, unread, until enough of them are worth the copy.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        cache: Any,
        mask: Tensor,
        position: Tensor,
        logits: Tensor,
    ) -> None:
        self.rows = list(range(len(requests)))
        self.answers = [DecodedAnswer() for _ in requests]
        self.cache, self.mask, self.position, self.logits = cache, mask, position, logits
        self.temperature = torch.tensor([r.temperature for r in requests])
        self.newest = torch.zeros(len(requests), dtype=torch.long)
        self._limits = [r.max_tokens for r in requests]
        self._open = set(self.rows)

    def append(self, tokens: Tensor, log_probs: Tensor, ends: frozenset[int]) -> list[int]:
        """Write a token to every open answer; the requests whose answers end with it."""
        self.newest = tokens
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=-1)
        ended = []
        for index, token, log_prob in zip(
            self.rows, tokens.tolist(), log_probs.tolist(), strict=True
        ):
            if index not in self._open:
                continue
            answer = self.answers[index]
            answer.tokens.append(token)
            answer.log_probs.append(log_prob)
            if token in ends or len(answer.tokens) >= self._limits[index]:
                ended.append(index)
        self._open.difference_update(ended)
        return ended

    def compact(self) -> None:
        """Leave ended rows behind, once they are many."""
        kept = [i for i, index in enumerate(self.rows) if index in self._open]
        if len(kept) > (1 - _COMPACT_AT) * len(self.rows):
            return
        self.rows = [self.rows[i] for i in kept]
        chosen = torch.tensor(kept, dtype=torch.long)
        self.cache.batch_select_indices(chosen)
        for name in ("mask", "position", "logits", "temperature", "newest"):
            setattr(self, name, getattr(self, name)[chosen])
