"""Batched decoding with transformers' `generate`: rows with samplers and limits of their own.

The `checkpoint` and `editscore` backends use it, and the CPU rollouts of verl, which load this file
by its path in an environment without our packages: it imports the standard library, torch and
transformers only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Sampler:
    """Chooses the next token of every row of a batch: the most likely one."""

    def choose(self, logits: "torch.Tensor") -> "torch.Tensor":
        """Tokens (rows) for logits (rows x vocabulary)."""
        return logits.argmax(-1)


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


def decode(
    model: Any,
    inputs: "Mapping[str, torch.Tensor]",
    limits: Sequence[int],
    stops: Sequence[int],
    sampler: Sampler | None = None,
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
        on_end: called with the number and the tokens of an answer as soon as it has ended.
        is_cancelled: checked before every token; true ends all answers where they are.
    """
    import torch
    from transformers import GenerationConfig

    chooser = sampler or Sampler()
    answers: list[list[int]] = [[] for _ in limits]
    ended = torch.zeros(len(limits), dtype=torch.bool, device=inputs["input_ids"].device)

    def only_chosen(_tokens: "torch.Tensor", logits: "torch.Tensor") -> "torch.Tensor":
        chosen = chooser.choose(logits)[:, None]
        return torch.full_like(logits, -torch.inf).scatter(-1, chosen, 0.0)

    def note_ended(tokens: "torch.Tensor", _scores: Any, **_options: Any) -> "torch.Tensor":
        for row, token in enumerate(tokens[:, -1].tolist()):
            if not ended[row]:
                answers[row].append(token)
                ended[row] = token in stops or len(answers[row]) >= limits[row]
                if ended[row]:
                    on_end(row, answers[row])
        return ended | is_cancelled()

    model.model.rope_deltas = None  # of the last batch
    config = GenerationConfig(
        max_new_tokens=max(limits), do_sample=False, repetition_penalty=1.0, pad_token_id=stops[0]
    )
    with torch.inference_mode():
        model.generate(
            **inputs,
            generation_config=config,
            logits_processor=[only_chosen],
            stopping_criteria=[note_ended],
        )
    return answers
