"""Teach the tiny model to see, to read and to compare: plain PyTorch, a few million parameters.

Deterministic by seed (on one kind of machine): lessons, their order and the first weights follow
from it. A killed run goes on from its last saved state.
"""

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from inference.sketch_world.seeded_random import random_by

from .architecture import build_model, build_processor
from .batches import SampleBatches, pixels
from .pretraining_samples import Lesson, drill, lesson, reading
from .settings import BaseModelSettings, Lessons
from .vision_pretraining import Probes, sight
from .vocabulary import build_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import Qwen2Tokenizer, Qwen3VLForConditionalGeneration

_WARM_UP = 0.05
_LAST_RATE = 0.02  # share of the peak learning rate that is left at the end
_REPORT_EVERY = 20
_SAVE_EVERY = 500
_STATE = "state.pt"
_POOL = 16  # steps whose lessons are sorted by length together
# Share of captions of one picture, until that share of the steps is done: seeing comes first.
_CAPTIONS = ((0.15, 0.8), (1.0, 0.1))


@dataclass(frozen=True)
class PretrainProgress:
    """How far the lessons are: `loss` is the mean since the last report."""

    step: int
    total: int
    loss: float
    samples_per_second: float


def pretrain(
    folder: Path, settings: BaseModelSettings, report: Callable[[PretrainProgress], object]
) -> dict[str, float]:
    """Write the taught model to `folder` in Hugging Face format (bfloat16 weights).

    Returns:
        Final metrics: loss and samples seen.
    """
    import torch

    torch.set_num_threads(settings.lessons.threads)
    tokenizer = build_tokenizer(settings.architecture.vocabulary)
    model = build_model(settings.architecture, tokenizer, settings.lessons.seed)
    course = _Curriculum(model, tokenizer, settings, folder / _STATE)
    metrics = course.teach(report)
    model.bfloat16().save_pretrained(folder)
    build_processor(settings.architecture, tokenizer).save_pretrained(folder)
    course.state.unlink(missing_ok=True)
    return metrics


class _Curriculum:
    """The lessons of one model, part after part, each with an optimizer of its own."""

    def __init__(
        self,
        model: "Qwen3VLForConditionalGeneration",
        tokenizer: "Qwen2Tokenizer",
        settings: BaseModelSettings,
        state: Path,
    ) -> None:
        import torch

        self._model, self.state = model, state
        self._parts = _parts(model, tokenizer, settings)
        self._half = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self._identity = json.dumps(settings.model_dump(mode="json"), sort_keys=True)
        state.parent.mkdir(parents=True, exist_ok=True)

    def teach(self, report: Callable[[PretrainProgress], object]) -> dict[str, float]:
        done, total = self._restored(), sum(part.steps for part in self._parts)
        losses: list[float] = []
        last, samples, begun = 0.0, 0, time.perf_counter()
        for number in range(done, total):
            part, step = self._place(number)
            losses.append(self._step(part, step))
            samples += part.batch
            if (number + 1) % _REPORT_EVERY == 0 or number + 1 == total:
                last, pace = sum(losses) / len(losses), samples / (time.perf_counter() - begun)
                report(PretrainProgress(number + 1, total, last, pace))
                losses, samples, begun = [], 0, time.perf_counter()
            if step + 1 == part.steps or (part.resumable and (step + 1) % _SAVE_EVERY == 0):
                self._save(number + 1)
        return {"loss": last, "samples": float(sum(p.batch * p.steps for p in self._parts))}

    def _place(self, number: int) -> tuple["_Lessons", int]:
        """The part that a step of the course belongs to, and its number in there."""
        for part in self._parts[:-1]:
            if number < part.steps:
                return part, number
            number -= part.steps
        return self._parts[-1], number

    def _step(self, part: "_Lessons", step: int) -> float:
        import torch

        for group in part.optimizer.param_groups:
            group["lr"] = part.peak * _share_of_rate(step / part.steps)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._half):
            loss = part.loss(step)
        part.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        part.optimizer.step()
        return loss.item()

    def _save(self, done: int) -> None:
        """So that a killed course goes on here, with the optimizer of the step that comes next."""
        import torch

        state = {
            "identity": self._identity,
            "step": done,
            "model": self._model.state_dict(),
            "optimizer": self._place(done)[0].optimizer.state_dict(),
        }
        temporary = self.state.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self.state)

    def _restored(self) -> int:
        """Steps done by an earlier run with the same settings."""
        import torch

        if not self.state.exists():
            return 0
        state = torch.load(self.state, weights_only=True)
        if state["identity"] != self._identity:
            return 0
        self._model.load_state_dict(state["model"])
        self._place(state["step"])[0].optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])


def _parts(
    model: "Qwen3VLForConditionalGeneration",
    tokenizer: "Qwen2Tokenizer",
    settings: BaseModelSettings,
) -> tuple["_Lessons", ...]:
    """The parts of the course in their order."""
    lessons = settings.lessons
    mixture = partial(_Mixture, model, tokenizer, peak=lessons.learning_rate)
    return (
        _SightLessons(model, settings),
        _WordLessons(model, tokenizer, settings),
        mixture(steps=lessons.drill_steps, sorts=_drills(lessons)),
        mixture(steps=lessons.surprise_steps, sorts=_surprises(lessons)),
    )


def _share_of_rate(done: float) -> float:
    """Of the peak learning rate: linear warm-up, then a cosine down to a small rest."""
    if done < _WARM_UP:
        return done / _WARM_UP + 1e-3
    falling = 0.5 * (1 + math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP)))
    return _LAST_RATE + (1 - _LAST_RATE) * falling


class _Lessons(ABC):
    """A part of the course; one that is not resumable starts anew when it was interrupted.

    Args:
        batch: samples of a step.
        peak: the highest learning rate.
        learned: what the part's optimizer changes.
    """

    resumable = True

    def __init__(
        self, batch: int, steps: int, peak: float, learned: Iterable["torch.nn.Parameter"]
    ) -> None:
        import torch

        self.batch, self.steps, self.peak = batch, steps, peak
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(learned, weight_decay=0.01)

    @abstractmethod
    def loss(self, step: int) -> "torch.Tensor":
        """The loss of a step's samples, to be differentiated."""


class _SightLessons(_Lessons):
    """Every cell of crowded pictures, asked of the vision tower through probes."""

    resumable = False  # the probes are not kept

    def __init__(
        self, model: "Qwen3VLForConditionalGeneration", settings: BaseModelSettings
    ) -> None:
        lessons = settings.lessons
        self._tower, self._first = model.model.visual, _first_seed(lessons)
        self._probes = Probes(settings.architecture.hidden, lessons.seed)
        learned = [*self._tower.parameters(), *self._probes.layers.parameters()]
        peak = lessons.sight_learning_rate
        super().__init__(lessons.sight_batch, lessons.sight_steps, peak, learned)

    def loss(self, step: int) -> "torch.Tensor":
        sights = [sight(seed) for seed in _seeds(self._first, step, self.batch)]
        pictures = pixels([sight.picture for sight in sights])
        seen = self._tower(pictures["pixel_values"], grid_thw=pictures["image_grid_thw"])
        return self._probes.loss([seen.pooler_output, *seen.deepstack_features], sights)


class _WordLessons(_Lessons):
    """Captions, comparisons and expectations, asked of the whole model."""

    def __init__(
        self,
        model: "Qwen3VLForConditionalGeneration",
        tokenizer: "Qwen2Tokenizer",
        settings: BaseModelSettings,
    ) -> None:
        lessons = settings.lessons
        super().__init__(lessons.batch, lessons.steps, lessons.learning_rate, model.parameters())
        self._model, self._batches = model, SampleBatches(tokenizer)
        self._first = _first_seed(lessons)
        self._pools: dict[int, list[Lesson]] = {}

    def loss(self, step: int) -> "torch.Tensor":
        return self._model(**self._batches.of(self._lessons(step))).loss

    def _lessons(self, step: int) -> list[Lesson]:
        """The step's share of a pool of lessons that is sorted by length, against padding."""
        number, place = divmod(step, _POOL)
        if number not in self._pools:
            self._pools = {number: self._pool(number)}
        order = random_by("order", number).permutation(_POOL)
        first = int(order[place]) * self.batch
        return self._pools[number][first : first + self.batch]

    def _pool(self, number: int) -> list[Lesson]:
        done = number * _POOL / self.steps
        captions = next(share for end, share in _CAPTIONS if done < end)
        seeds = _seeds(self._first, number, _POOL * self.batch)
        return sorted((lesson(seed, captions) for seed in seeds), key=self._batches.length)


class _Sort(NamedTuple):
    """Samples of one sort in every step of a mixture, by seed from `first` on."""

    make: Callable[[int], Lesson]
    first: int
    batch: int


class _Mixture(_Lessons):
    """Lessons of several sorts in every step; each sort's mean loss counts as much as another's."""

    def __init__(
        self,
        model: "Qwen3VLForConditionalGeneration",
        tokenizer: "Qwen2Tokenizer",
        steps: int,
        peak: float,
        sorts: tuple[_Sort, ...],
    ) -> None:
        super().__init__(sum(sort.batch for sort in sorts), steps, peak, model.parameters())
        self._model, self._batches, self._sorts = model, SampleBatches(tokenizer), sorts

    def loss(self, step: int) -> "torch.Tensor":
        import torch

        return torch.stack([self._loss(sort, step) for sort in self._sorts]).sum()

    def _loss(self, sort: _Sort, step: int) -> "torch.Tensor":
        samples = [sort.make(seed) for seed in _seeds(sort.first, step, sort.batch)]
        return self._model(**self._batches.of(samples)).loss


def _drills(lessons: Lessons) -> tuple[_Sort, ...]:
    """Phrases to compare, with lessons beside them, or the model would forget to see."""
    first, half = _first_seed(lessons), lessons.batch // 2
    told = partial(lesson, captions=_CAPTIONS[-1][1])
    return (
        _Sort(drill, first, lessons.batch),
        _Sort(reading, first, half),
        _Sort(told, first + lessons.steps * lessons.batch, half),
    )


def _surprises(lessons: Lessons) -> tuple[_Sort, ...]:
    """Lessons with surprises, with drills beside them, or the model would forget to compare."""
    first, half = _first_seed(lessons), lessons.batch // 2
    first += (lessons.steps + lessons.drill_steps) * lessons.batch
    told = partial(lesson, captions=_CAPTIONS[-1][1], surprises=True)
    return (
        _Sort(told, first, lessons.batch),
        _Sort(drill, first, half),
        _Sort(partial(reading, varied=True), first, lessons.batch),
    )


def _first_seed(lessons: Lessons) -> int:
    return lessons.seed * 10**9


def _seeds(first: int, step: int, batch: int) -> range:
    """Of a step's samples."""
    return range(first + step * batch, first + (step + 1) * batch)
