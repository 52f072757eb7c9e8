"""Choosing the next token of every row of a batch: the likeliest one, or a draw of its own seed.

A row's draws are numbers made from its seed before anything is written, so that an answer does not
depend on what else is in its batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Sampling:
    """How a draw is made: the terms of Hugging Face's `generate`."""

    temperature: float
    top_p: float
    top_k: int


class Greedy:
    """The likeliest token."""

    def choose(self, logits: "torch.Tensor") -> "torch.Tensor":
        """Tokens (rows) for logits (rows x vocabulary)."""
        return logits.argmax(-1)

    def keep(self, rows: "torch.Tensor") -> None:
        """Go on with these rows of the batch."""


class SeededSampler:
    """A token drawn among the `top_k` likeliest ones that make up `top_p` of the odds.

    Args:
        seeds: one a row.
        longest: tokens that a row may get.
    """

    def __init__(
        self, sampling: Sampling, seeds: Sequence[int], longest: int, device: "torch.device"
    ) -> None:
        import torch

        self._sampling, self._drawn = sampling, 0
        numbers = [_numbers(seed, longest) for seed in seeds]
        self._numbers = torch.tensor(numbers, device=device)

    def choose(self, logits: "torch.Tensor") -> "torch.Tensor":
        """Tokens (rows) for logits (rows x vocabulary)."""
        likeliest = logits.float().topk(min(self._sampling.top_k, logits.shape[-1]))
        odds = (likeliest.values / self._sampling.temperature).softmax(-1)
        likelier = odds.cumsum(-1) - odds
        reached = (odds * (likelier < self._sampling.top_p)).cumsum(-1)
        number = self._numbers[:, self._drawn, None] * reached[:, -1:]
        self._drawn += 1
        place = (reached <= number).sum(-1, keepdim=True).clamp(max=odds.shape[-1] - 1)
        return likeliest.indices.gather(-1, place)[:, 0]

    def keep(self, rows: "torch.Tensor") -> None:
        """Go on with these rows of the batch."""
        self._numbers = self._numbers[rows]


def _numbers(seed: int, count: int) -> list[float]:
    dice = Random(seed)
    return [dice.random() for _ in range(count)]
