"""Decoding of a batch: finished rows leave it, keys and values are written in place.

`generate` of transformers carries finished rows to the end of the longest and copies all keys and
values at every token. With rows of one length both take the same time; answers differ in length.
The prompts are read by the model as transformers has it; only the loop over new tokens is ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .sampling import Greedy, Sampling, SeededSampler

if TYPE_CHECKING:
    import torch

# Room is made for so many tokens at once; more would cost memory, fewer would cost copies.
_GROWTH = 128
# The batch is packed when no more than this share of its rows is still being written.
_PACK_AT = 0.8


@dataclass(frozen=True)
class PromptBatch:
    """Prompts of one batch, padded on the left.

    `inputs` are the model's: input_ids, attention_mask, mm_token_type_ids (rows x length) and,
    where there are pictures, pixel_values (patches x values) and image_grid_thw (pictures x 3).
    `limits` are the most new tokens of each row, `seeds` those of its draws.
    """

    inputs: "dict[str, torch.Tensor]"
    limits: Sequence[int]
    seeds: Sequence[int] = ()


def decode(
    model: Any,
    batch: PromptBatch,
    stops: Sequence[int],
    given_up: Callable[[], bool],
    sampling: Sampling | None = None,
) -> list[list[int]]:
    """The new tokens of every row, without the stop token.

    Args:
        stops: ids of tokens that end an answer.
        given_up: asked before every token; true ends all answers where they are.
        sampling: how tokens are drawn; None: the likeliest is taken.
    """
    import torch

    with torch.inference_mode():
        choice = _choice(batch, sampling, model.device)
        return DecodeState.begun(model, batch, choice).finish(frozenset(stops), given_up)


def _choice(batch: PromptBatch, sampling: Sampling | None, device: Any) -> Greedy | SeededSampler:
    return SeededSampler(sampling, batch.seeds, max(batch.limits), device) if sampling else Greedy()


class KVCache:
    """Keys and values of all layers: rows x heads x room x size, `length` of the room in use.

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
        """Write the keys and values of the newest token; all that there are now."""
        kept = self._layers[layer_idx]
        for whole, new in zip(kept, (keys, values), strict=True):
            whole[:, :, self._length - 1] = new[:, :, 0]
        return tuple(whole[:, :, : self._length] for whole in kept)

    def with_one_more(self) -> "KVCache":
        """Itself, ready for one more token to be written."""
        if self._length == self._layers[0][0].shape[2]:
            self._layers = [[_longer(whole) for whole in layer] for layer in self._layers]
        self._length += 1
        return self

    def keep(self, rows: "torch.Tensor") -> None:
        self._layers = [[whole[rows] for whole in layer] for layer in self._layers]


def _longer(whole: "torch.Tensor") -> "torch.Tensor":
    rows, heads, room, size = whole.shape
    longer = whole.new_empty(rows, heads, room + _GROWTH, size)
    longer[:, :, :room] = whole
    return longer


@dataclass
class _Answer:
    """One row's new tokens, so far."""

    limit: int
    tokens: list[int] = field(default_factory=list)
    done: bool = False

    def note(self, token: int, stops: frozenset[int]) -> None:
        if self.done:
            return
        self.done = token in stops
        if not self.done:
            self.tokens.append(token)
            self.done = len(self.tokens) >= self.limit


@dataclass
class DecodeState:
    """A batch being answered; tensors have one row per answer that is still in the batch.

    Args:
        seen: rows x length, false where a prompt is padded.
        choice: how the next tokens are chosen.
        position: the next token's place on all three axes of the rotary embedding, per row.
        next: the token chosen last, per row, which the model has not read yet.
    """

    model: Any
    memory: KVCache
    rows: list[_Answer]
    choice: Greedy | SeededSampler
    seen: "torch.Tensor"
    position: "torch.Tensor"
    next: "torch.Tensor"

    @classmethod
    def begun(cls, model: Any, batch: PromptBatch, choice: Greedy | SeededSampler) -> "DecodeState":
        """Have the prompts read; `next` is then the first token of every answer."""
        from transformers import DynamicCache

        cache, seen = DynamicCache(config=model.config.text_config), batch.inputs["attention_mask"]
        model.model.rope_deltas = None  # what an earlier batch left there
        inputs = dict(batch.inputs)
        if "pixel_values" not in inputs:  # without pictures the model would count padding, too
            inputs["position_ids"] = _places(seen).expand(3, -1, -1)
        output = model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        shift = model.model.rope_deltas
        return cls(
            model=model,
            memory=KVCache(cache),
            rows=[_Answer(limit) for limit in batch.limits],
            choice=choice,
            seen=seen.bool(),
            position=seen.sum(-1) + (0 if shift is None else shift.flatten()),
            next=choice.choose(output.logits[:, -1]),
        )

    def finish(self, stops: frozenset[int], given_up: Callable[[], bool]) -> list[list[int]]:
        answers = self.rows
        while self._note(stops) and not given_up():
            self._step()
        return [answer.tokens for answer in answers]

    def _note(self, stops: frozenset[int]) -> bool:
        """Note the chosen tokens, pack the batch if it pays; whether anything is left to write."""
        for row, token in zip(self.rows, self.next.tolist(), strict=True):
            row.note(token, stops)
        open_rows = [place for place, row in enumerate(self.rows) if not row.done]
        if 0 < len(open_rows) <= _PACK_AT * len(self.rows):
            self._keep(open_rows)
        return bool(open_rows)

    def _keep(self, places: list[int]) -> None:
        rows = self.next.new_tensor(places)
        self.rows = [self.rows[place] for place in places]
        self.memory.keep(rows)
        self.choice.keep(rows)
        self.seen, self.position, self.next = self.seen[rows], self.position[rows], self.next[rows]

    def _step(self) -> None:
        """Have the chosen tokens read; choose the next ones."""
        self.seen = _with_one_more(self.seen)
        language = self.model.model.language_model
        output = language(
            inputs_embeds=self.model.get_input_embeddings()(self.next[:, None]),
            attention_mask=self.seen[:, None, None, :],
            position_ids=self.position[None, :, None].expand(3, -1, 1),
            past_key_values=self.memory.with_one_more(),
        )
        self.next = self.choice.choose(self.model.lm_head(output.last_hidden_state[:, -1]))
        self.position = self.position + 1


def _places(seen: "torch.Tensor") -> "torch.Tensor":
    """Where each token of a prompt stands when padding is not counted: rows x length."""
    return (seen.cumsum(-1) - 1).clamp(min=0)


def _with_one_more(seen: "torch.Tensor") -> "torch.Tensor":
    from torch.nn.functional import pad

    return pad(seen, (0, 1), value=True)
