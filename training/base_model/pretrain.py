"""Pretrains the tiny model to see, to read and to compare: plain PyTorch, 3.6 M parameters.

Deterministic by seed (on one kind of machine): samples, their order and the initial weights follow
from it. A killed run resumes from its last saved state.
"""

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from inference.sketch_world.seeded_random import random_by
from warehouse.atomic import atomic_path

from ..launch.jobs import TrainingProgress
from .architecture import build_model, build_processor
from .batches import Collator, pixels
from .pretraining_samples import TrainingSample, drill_sample, image_sample, reading_sample
from .settings import BaseModelSettings, PretrainingSettings
from .vision_pretraining import Probes, cell_sample
from .vocabulary import build_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import Qwen2Tokenizer, Qwen3VLForConditionalGeneration

_WARM_UP = 0.05  # share of a phase's steps
_FINAL_RATE = 0.02  # share of the peak learning rate
_REPORT_EVERY = 20
_SAVE_EVERY = 500
_STATE = "state.pt"
_POOL = 16  # steps whose samples are sorted by length together
# Share of captions of one image, until that share of the steps is done: seeing comes first.
_CAPTIONS = ((0.15, 0.8), (1.0, 0.1))

Report = Callable[[TrainingProgress], object]


def pretrain(folder: Path, settings: BaseModelSettings, report: Report) -> dict[str, float]:
    """Write the pretrained model to `folder` in Hugging Face format (bfloat16 weights).

    Args:
        report: called every 20 steps; the loss is the mean since the last call.

    Returns:
        Final metrics: loss and number of samples.
    """
    import torch

    torch.set_num_threads(settings.lessons.threads)
    tokenizer = build_tokenizer(settings.architecture.vocabulary)
    model = build_model(settings.architecture, tokenizer, settings.lessons.seed)
    curriculum = _Curriculum(model, tokenizer, settings, folder / _STATE)
    metrics = curriculum.train(report)
    model.bfloat16().save_pretrained(folder)
    build_processor(settings.architecture, tokenizer).save_pretrained(folder)
    curriculum.state.unlink(missing_ok=True)
    return metrics


class _Curriculum:
    """Phases of training, one after the other, each with its own optimizer.

    Args:
        state: file of what a killed run resumes from.
    """

    def __init__(
        self,
        model: "Qwen3VLForConditionalGeneration",
        tokenizer: "Qwen2Tokenizer",
        settings: BaseModelSettings,
        state: Path,
    ) -> None:
        import torch

        self._model, self.state = model, state
        self._phases = _phases(model, tokenizer, settings)
        self._has_bfloat16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self._identity = json.dumps(settings.model_dump(mode="json"), sort_keys=True)

    def train(self, report: Report) -> dict[str, float]:
        """Run the remaining steps; returns final metrics."""
        done, total = self._restore(), sum(phase.steps for phase in self._phases)
        losses: list[float] = []
        loss, samples, start = 0.0, 0, time.perf_counter()
        for number in range(done, total):
            phase, step = self._locate(number)
            losses.append(self._step(phase, step))
            samples += phase.batch
            if (number + 1) % _REPORT_EVERY == 0 or number + 1 == total:
                loss, speed = sum(losses) / len(losses), samples / (time.perf_counter() - start)
                report(
                    TrainingProgress(
                        step=number + 1, total=total, loss=loss, samples_per_second=speed
                    )
                )
                losses, samples, start = [], 0, time.perf_counter()
            if step + 1 == phase.steps or (phase.resumable and (step + 1) % _SAVE_EVERY == 0):
                self._save(number + 1)
        return {"loss": loss, "samples": float(sum(p.batch * p.steps for p in self._phases))}

    def _locate(self, number: int) -> tuple["_Phase", int]:
        """The phase of a step of the curriculum, and the step's number within it."""
        for phase in self._phases[:-1]:
            if number < phase.steps:
                return phase, number
            number -= phase.steps
        return self._phases[-1], number

    def _step(self, phase: "_Phase", step: int) -> float:
        import torch

        for group in phase.optimizer.param_groups:
            group["lr"] = phase.peak * _rate_factor(step / phase.steps)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._has_bfloat16):
            loss = phase.loss(step)
        phase.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        phase.optimizer.step()
        return loss.item()

    def _save(self, done: int) -> None:
        """Save the weights and the optimizer of the next step."""
        import torch

        state = {
            "identity": self._identity,
            "step": done,
            "model": self._model.state_dict(),
            "optimizer": self._locate(done)[0].optimizer.state_dict(),
        }
        with atomic_path(self.state, self.state.with_suffix(".tmp")) as draft:
            torch.save(state, draft)

    def _restore(self) -> int:
        """Load the state of an earlier run with the same settings; returns its steps, or 0."""
        import torch

        if not self.state.exists():
            return 0
        state = torch.load(self.state, weights_only=True)
        if state["identity"] != self._identity:
            return 0
        self._model.load_state_dict(state["model"])
        self._locate(state["step"])[0].optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])


def _phases(
    model: "Qwen3VLForConditionalGeneration",
    tokenizer: "Qwen2Tokenizer",
    settings: BaseModelSettings,
) -> tuple["_Phase", ...]:
    lessons = settings.lessons
    mixture = partial(_MixturePhase, model, tokenizer, peak=lessons.learning_rate)
    return (
        _VisionPhase(model, settings),
        _ImagePhase(model, tokenizer, settings),
        mixture(steps=lessons.drill_steps, sources=_drills(lessons)),
        mixture(steps=lessons.surprise_steps, sources=_surprises(lessons)),
    )


def _rate_factor(done: float) -> float:
    """Share of the peak learning rate: linear warm-up, then a cosine down to `_FINAL_RATE`."""
    if done < _WARM_UP:
        return done / _WARM_UP + 1e-3
    cosine = 0.5 * (1 + math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP)))
    return _FINAL_RATE + (1 - _FINAL_RATE) * cosine


class _Phase(ABC):
    """A phase of the curriculum; one that is not resumable is restarted when interrupted.

    Args:
        batch: samples of a step.
        peak: the highest learning rate.
        parameters: what the phase trains.
    """

    resumable = True

    def __init__(
        self, batch: int, steps: int, peak: float, parameters: Iterable["torch.nn.Parameter"]
    ) -> None:
        import torch

        self.batch, self.steps, self.peak = batch, steps, peak
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(parameters, weight_decay=0.01)

    @abstractmethod
    def loss(self, step: int) -> "torch.Tensor":
        """The loss of a step's samples, a scalar to differentiate."""


class _VisionPhase(_Phase):
    """The vision tower alone: probes predict every cell of crowded images."""

    resumable = False  # the probes are not saved

    def __init__(
        self, model: "Qwen3VLForConditionalGeneration", settings: BaseModelSettings
    ) -> None:
        lessons = settings.lessons
        self._tower, self._first = model.model.visual, _first_seed(lessons)
        self._probes = Probes(settings.architecture.hidden, lessons.seed)
        parameters = [*self._tower.parameters(), *self._probes.layers.parameters()]
        peak = lessons.sight_learning_rate
        super().__init__(lessons.sight_batch, lessons.sight_steps, peak, parameters)

    def loss(self, step: int) -> "torch.Tensor":
        samples = [cell_sample(seed) for seed in _seeds(self._first, step, self.batch)]
        inputs = pixels([sample.image for sample in samples])
        output = self._tower(inputs["pixel_values"], grid_thw=inputs["image_grid_thw"])
        return self._probes.loss([output.pooler_output, *output.deepstack_features], samples)


class _ImagePhase(_Phase):
    """The complete model: captions, comparisons, expectations and inspections."""

    def __init__(
        self,
        model: "Qwen3VLForConditionalGeneration",
        tokenizer: "Qwen2Tokenizer",
        settings: BaseModelSettings,
    ) -> None:
        lessons = settings.lessons
        super().__init__(lessons.batch, lessons.steps, lessons.learning_rate, model.parameters())
        self._model, self._collate = model, Collator(tokenizer)
        self._first = _first_seed(lessons)
        self._pools: dict[int, list[TrainingSample]] = {}

    def loss(self, step: int) -> "torch.Tensor":
        return self._model(**self._collate(self._samples(step))).loss

    def _samples(self, step: int) -> list[TrainingSample]:
        """The step's share of a pool of samples that is sorted by length, against padding."""
        number, position = divmod(step, _POOL)
        if number not in self._pools:
            self._pools = {number: self._pool(number)}
        order = random_by("order", number).permutation(_POOL)
        first = int(order[position]) * self.batch
        return self._pools[number][first : first + self.batch]

    def _pool(self, number: int) -> list[TrainingSample]:
        done = number * _POOL / self.steps
        captions = next(share for end, share in _CAPTIONS if done < end)
        seeds = _seeds(self._first, number, _POOL * self.batch)
        samples = (image_sample(seed, captions) for seed in seeds)
        return sorted(samples, key=self._collate.length)


class _Source(NamedTuple):
    """Samples of one kind in every step of a mixture, by seed from `first` on."""

    make: Callable[[int], TrainingSample]
    first: int
    batch: int


class _MixturePhase(_Phase):
    """Several kinds of samples in every step, each with the same weight of its mean loss."""

    def __init__(
        self,
        model: "Qwen3VLForConditionalGeneration",
        tokenizer: "Qwen2Tokenizer",
        steps: int,
        peak: float,
        sources: tuple[_Source, ...],
    ) -> None:
        super().__init__(sum(source.batch for source in sources), steps, peak, model.parameters())
        self._model, self._collate, self._sources = model, Collator(tokenizer), sources

    def loss(self, step: int) -> "torch.Tensor":
        import torch

        return torch.stack([self._loss(source, step) for source in self._sources]).sum()

    def _loss(self, source: _Source, step: int) -> "torch.Tensor":
        samples = [source.make(seed) for seed in _seeds(source.first, step, source.batch)]
        return self._model(**self._collate(samples)).loss


def _drills(lessons: PretrainingSettings) -> tuple[_Source, ...]:
    """Drills, with image samples against forgetting to see."""
    first, half = _first_seed(lessons), lessons.batch // 2
    image = partial(image_sample, captions=_CAPTIONS[-1][1])
    return (
        _Source(drill_sample, first, lessons.batch),
        _Source(reading_sample, first, half),
        _Source(image, first + lessons.steps * lessons.batch, half),
    )


def _surprises(lessons: PretrainingSettings) -> tuple[_Source, ...]:
    """Image samples with surprises, with drills against forgetting to compare."""
    first, half = _first_seed(lessons), lessons.batch // 2
    first += (lessons.steps + lessons.drill_steps) * lessons.batch
    image = partial(image_sample, captions=_CAPTIONS[-1][1], surprises=True)
    return (
        _Source(image, first, lessons.batch),
        _Source(drill_sample, first, half),
        _Source(partial(reading_sample, varied=True), first, lessons.batch),
    )


def _first_seed(lessons: PretrainingSettings) -> int:
    return lessons.seed * 10**9


def _seeds(first: int, step: int, batch: int) -> range:
    """Seeds of a step's samples."""
    return range(first + step * batch, first + (step + 1) * batch)
