"""Batched decoding for Qwen vision-language models: ended rows leave the batch, caching in place.

The `checkpoint` and `editscore` backends use it, and the CPU rollouts of verl, which load this file
by its path in an environment without our packages: it imports the standard library, torch and
transformers only.

transformers' own `generate` gives the same tokens, but takes 10-25 % longer (32 answers of 30-120
tokens, one CPU thread): it carries ended rows along and copies all keys and values at every token.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# The cache grows by so many tokens at once; more would cost memory, fewer would cost copies.
_GROWTH = 128
# Ended rows are removed when no more than this share of the batch is still open.
_COMPACT_AT = 0.8


class Sampler:
    """Chooses the next token of every row of a batch: the most likely one."""

    def choose(self, logits: "torch.Tensor") -> "torch.Tensor":
        """Tokens (rows) for logits (rows x vocabulary)."""
        return logits.argmax(-1)

    def keep(self, rows: "torch.Tensor") -> None:
        """Continue with these rows of the batch (indices)."""


@dataclass(frozen=True)
class Sampling:
    """As in `generate` of transformers."""

    temperature: float
    top_p: float
    top_k: int


class SeededSampler(Sampler):
    """Draws among the `top_k` most likely tokens that make up `top_p` of the probability.

    The random numbers of a row follow from its seed alone, so that an answer does not depend on
    the rest of its batch. `max_tokens`: of the longest answer.
    """

    def __init__(
        self, sampling: Sampling, seeds: Sequence[int], max_tokens: int, device: "torch.device"
    ) -> None:
        import torch

        self._sampling, self._step = sampling, 0
        generators = [Random(seed) for seed in seeds]
        numbers = [[generator.random() for _ in range(max_tokens)] for generator in generators]
        self._numbers = torch.tensor(numbers, device=device)

    def choose(self, logits: "torch.Tensor") -> "torch.Tensor":
        top = logits.float().topk(min(self._sampling.top_k, logits.shape[-1]))
        probabilities = (top.values / self._sampling.temperature).softmax(-1)
        more_likely = probabilities.cumsum(-1) - probabilities
        cumulative = (probabilities * (more_likely < self._sampling.top_p)).cumsum(-1)
        threshold = self._numbers[:, self._step, None] * cumulative[:, -1:]
        self._step += 1
        rank = (cumulative <= threshold).sum(-1, keepdim=True)
        rank = rank.clamp(max=probabilities.shape[-1] - 1)
        return top.indices.gather(-1, rank)[:, 0]

    def keep(self, rows: "torch.Tensor") -> None:
        self._numbers = self._numbers[rows]


def decode(
    model: Any,
    inputs: "Mapping[str, torch.Tensor]",
    limits: Sequence[int],
    stops: Sequence[int],
    sampler: Sampler | None = None,
    prompt_of_row: Sequence[int] | None = None,
    on_end: Callable[[int, list[int]], None] = lambda row, tokens: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> list[list[int]]:
    """The new tokens of every answer, its stop token included.

    Args:
        inputs: of the model, with prompts padded on the left: input_ids, attention_mask,
            mm_token_type_ids (prompts x length) and, where there are images, pixel_values
            (patches x values) and image_grid_thw (images x 3).
        limits: the most new tokens, per answer.
        stops: ids of tokens that end an answer.
        prompt_of_row: the prompt of each answer, which is read once for all of its answers; None:
            one answer per prompt.
        on_end: called with the number and the tokens of an answer as soon as it has ended.
        is_cancelled: checked before every token; true ends all answers where they are.
    """
    import torch

    rows = [_Row(number, limit) for number, limit in enumerate(limits)]
    with torch.inference_mode():
        state = DecodeState.prefill(model, inputs, rows, prompt_of_row, sampler or Sampler())
        while state.append_tokens(frozenset(stops), on_end) and not is_cancelled():
            state.step()
    return [row.tokens for row in rows]


@dataclass
class _Row:
    number: int
    limit: int
    tokens: list[int] = field(default_factory=list)
    has_ended: bool = False


class KVCache:
    """Keys and values of all layers (rows x heads x capacity x size), `length` of which are used.

    It has the methods that the model's attention calls on a cache of transformers.
    """

    def __init__(self, cache: Any) -> None:
        self._layers = [[layer.keys, layer.values] for layer in cache.layers]
        self._length = int(cache.get_seq_length())

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._length

    def update(
        self, keys: "torch.Tensor", values: "torch.Tensor", layer_idx: int, *_: object
    ) -> "tuple[torch.Tensor, ...]":
        """Write the keys and values of the newest token; returns all of the layer."""
        layer = self._layers[layer_idx]
        for stored, new in zip(layer, (keys, values), strict=True):
            stored[:, :, self._length - 1] = new[:, :, 0]
        return tuple(stored[:, :, : self._length] for stored in layer)

    def extend(self) -> None:
        """Make room for one more token, which `update` will write."""
        from torch.nn.functional import pad

        if self._length == self._layers[0][0].shape[2]:
            room = (0, 0, 0, _GROWTH)
            self._layers = [[pad(stored, room) for stored in layer] for layer in self._layers]
        self._length += 1

    def keep(self, rows: "torch.Tensor") -> None:
        """Continue with these rows (indices, possibly repeated)."""
        self._layers = [[stored[rows] for stored in layer] for layer in self._layers]


@dataclass
class DecodeState:
    """A batch being decoded; tensors have one row per answer that is still in it.

    `mask` (rows x length) is false where a prompt is padded; `positions` are those of the next
    token on all three axes of the rotary embedding. The model has not read `next_tokens` yet.
    """

    model: Any
    cache: KVCache
    rows: list[_Row]
    sampler: Sampler
    mask: "torch.Tensor"
    positions: "torch.Tensor"
    next_tokens: "torch.Tensor"

    @classmethod
    def prefill(
        cls,
        model: Any,
        inputs: "Mapping[str, torch.Tensor]",
        rows: list[_Row],
        prompt_of_row: Sequence[int] | None,
        sampler: Sampler,
    ) -> "DecodeState":
        """One forward pass over all prompts; `next_tokens` are then the answers' first."""
        from transformers import DynamicCache

        mask = inputs["attention_mask"]
        grids = {name: tensor for name, tensor in inputs.items() if name != "pixel_values"}
        positions, _ = model.model.get_rope_index(**grids)  # padding is not counted
        cache = DynamicCache(config=model.config.text_config)
        options = {"past_key_values": cache, "use_cache": True, "logits_to_keep": 1}
        output = model(**inputs, position_ids=positions, **options)
        kv_cache, logits = KVCache(cache), output.logits[:, -1]
        next_positions = positions.amax(dim=(0, 2)) + 1
        if prompt_of_row is not None:
            prompts = mask.new_tensor(prompt_of_row)
            kv_cache.keep(prompts)
            mask, next_positions, logits = mask[prompts], next_positions[prompts], logits[prompts]
        next_tokens = sampler.choose(logits)
        return cls(model, kv_cache, rows, sampler, mask.bool(), next_positions, next_tokens)

    def append_tokens(
        self, stops: frozenset[int], on_end: Callable[[int, list[int]], None]
    ) -> bool:
        """Append the chosen tokens to the open answers; returns whether any is still open."""
        for row, token in zip(self.rows, self.next_tokens.tolist(), strict=True):
            if row.has_ended:
                continue
            row.tokens.append(token)
            row.has_ended = token in stops or len(row.tokens) >= row.limit
            if row.has_ended:
                on_end(row.number, row.tokens)
        open_rows = [index for index, row in enumerate(self.rows) if not row.has_ended]
        if 0 < len(open_rows) <= _COMPACT_AT * len(self.rows):
            self._compact(open_rows)
        return bool(open_rows)

    def _compact(self, open_rows: list[int]) -> None:
        indices = self.next_tokens.new_tensor(open_rows)
        self.rows = [self.rows[index] for index in open_rows]
        self.cache.keep(indices)
        self.sampler.keep(indices)
        self.mask, self.positions = self.mask[indices], self.positions[indices]
        self.next_tokens = self.next_tokens[indices]

    def step(self) -> None:
        """Read the chosen tokens; choose the next ones."""
        from torch.nn.functional import pad

        self.mask = pad(self.mask, (0, 1), value=True)
        self.cache.extend()
        output = self.model.model.language_model(
            inputs_embeds=self.model.get_input_embeddings()(self.next_tokens[:, None]),
            attention_mask=self.mask[:, None, None, :],
            position_ids=self.positions[None, :, None].expand(3, -1, 1),
            past_key_values=self.cache,
        )
        logits = self.model.lm_head(output.last_hidden_state[:, -1])
        self.next_tokens = self.sampler.choose(logits)
        self.positions = self.positions + 1
