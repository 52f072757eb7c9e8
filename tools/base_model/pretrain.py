"""Pretrains the tiny model to see, to read and to compare: plain PyTorch, 3.6 M parameters.

Deterministic by seed (on one kind of machine): samples, their order and the initial weights follow
from it. A killed run resumes from its last saved state.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from inference.sketch_world.seeded_random import random_by
from schemas.yaml_config import ConfigModel
from training.launch.jobs import TrainingProgress
from training.sft.recipe import cpu_has_amx
from warehouse.atomic import atomic_path

from .architecture import Architecture, build_model, build_processor
from .batches import Collator, pixels
from .pretraining_samples import TrainingSample, drill_sample, image_sample, reading_sample
from .vision_pretraining import Probes, cell_sample
from .vocabulary import build_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import Qwen3VLForConditionalGeneration

_WARM_UP = 0.05  # share of a phase's steps
_FINAL_RATE = 0.02  # share of the peak learning rate
_REPORT_EVERY = 20
_SAVE_EVERY = 500
_STATE = "state.pt"
_SEED_STRIDE = 10**9  # between the samples of two seeds
_POOL = 16  # steps whose samples are sorted by length together
# Share of captions of one image, until that share of the steps is done: seeing comes first.
_CAPTIONS = ((0.15, 0.8), (1.0, 0.1))


class PretrainingSettings(ConfigModel):
    """Pretraining of the tiny model: to see and to read, before it is fine-tuned as an agent."""

    sight_steps: int = Field(1200, ge=0, description="Optimizer steps of the vision tower alone")
    sight_batch: int = Field(64, ge=1, description="Images per step of these")
    sight_learning_rate: float = Field(2e-3, gt=0, description="Their peak learning rate")
    steps: int = Field(2400, ge=1, description="Optimizer steps of the whole model")
    batch: int = Field(32, ge=1, description="Samples per step of these")
    learning_rate: float = Field(1e-3, gt=0, description="Their peak learning rate")
    drill_steps: int = Field(
        600, ge=0, description="Optimizer steps of drills, mixed with readings and image samples"
    )
    surprise_steps: int = Field(
        1200,
        ge=0,
        description="Optimizer steps of image samples whose result mostly differs from the request",
    )
    seed: int = Field(0, description="Seed of weights, samples and their order")
    threads: int = Field(2, ge=1, description="CPU threads")


class BaseModelSettings(ConfigModel):
    """How the base model is made."""

    architecture: Architecture = Field(Architecture(), description="Sizes of the tiny model")
    lessons: PretrainingSettings = Field(
        PretrainingSettings(), description="How the tiny model is pretrained"
    )


Report = Callable[[TrainingProgress], object]
_Source = Callable[[int], list[TrainingSample]]  # samples of a step


def pretrain(folder: Path, settings: BaseModelSettings, report: Report) -> dict[str, float]:
    """Write the pretrained model to `folder` in Hugging Face format (bfloat16 weights).

    Calls `report` every 20 steps, with the mean loss since the last call. Returns the final loss
    and the number of samples.
    """
    import torch

    torch.set_num_threads(settings.lessons.threads)
    tokenizer = build_tokenizer(settings.architecture.vocabulary)
    model = build_model(settings.architecture, tokenizer, settings.lessons.seed)
    phases = _phases(model, Collator(tokenizer), settings)
    identity = json.dumps(settings.model_dump(mode="json"), sort_keys=True)
    curriculum = _Curriculum(model, phases, folder / _STATE, identity)
    metrics = curriculum.train(report)
    model.bfloat16().save_pretrained(folder)
    build_processor(settings.architecture, tokenizer).save_pretrained(folder)
    curriculum.state.unlink(missing_ok=True)
    return metrics


@dataclass(frozen=True)
class _Phase:
    steps: int
    batch: int  # samples of a step
    peak: float  # the highest learning rate
    optimizer: "torch.optim.Optimizer"
    loss: Callable[[int], "torch.Tensor"]  # of a step's samples, a scalar to differentiate
    resumable: bool = True  # else it is restarted when interrupted


@dataclass(frozen=True)
class _Curriculum:
    """Phases of training, one after the other."""

    model: "Qwen3VLForConditionalGeneration"
    phases: tuple[_Phase, ...]
    state: Path  # file that a killed run with the same identity resumes from
    identity: str

    def train(self, report: Report) -> dict[str, float]:
        """Run the remaining steps; returns final metrics."""
        first, total = self._restore() + 1, sum(phase.steps for phase in self.phases)
        losses: list[float] = []
        loss, samples, start = 0.0, 0, time.perf_counter()
        for done in range(first, total + 1):
            phase, step = self._locate(done - 1)
            losses.append(self._step(phase, step))
            samples += phase.batch
            if done % _REPORT_EVERY == 0 or done == total:
                loss, rate = sum(losses) / len(losses), samples / (time.perf_counter() - start)
                report(TrainingProgress(step=done, total=total, loss=loss, samples_per_second=rate))
                losses, samples, start = [], 0, time.perf_counter()
            if step + 1 == phase.steps or (phase.resumable and (step + 1) % _SAVE_EVERY == 0):
                self._save(done)
        return {"loss": loss, "samples": float(sum(p.batch * p.steps for p in self.phases))}

    def _locate(self, number: int) -> tuple[_Phase, int]:
        """The phase of a step of the curriculum, and the step's number within it."""
        for phase in self.phases[:-1]:
            if number < phase.steps:
                return phase, number
            number -= phase.steps
        return self.phases[-1], number

    def _step(self, phase: _Phase, step: int) -> float:
        import torch

        for group in phase.optimizer.param_groups:
            group["lr"] = phase.peak * _rate_factor(step / phase.steps)
        with torch.autocast("cpu", torch.bfloat16, enabled=cpu_has_amx()):
            loss = phase.loss(step)
        phase.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        phase.optimizer.step()
        return loss.item()

    def _save(self, done: int) -> None:
        import torch

        state = {
            "identity": self.identity,
            "step": done,
            "model": self.model.state_dict(),
            "optimizer": self._locate(done)[0].optimizer.state_dict(),  # of the next step
        }
        with atomic_path(self.state, self.state.with_suffix(".tmp")) as draft:
            torch.save(state, draft)

    def _restore(self) -> int:
        """Load the state of an earlier run with the same settings; returns its steps, or 0."""
        import torch

        if not self.state.exists():
            return 0
        state = torch.load(self.state, weights_only=True)
        if state["identity"] != self.identity:
            return 0
        self.model.load_state_dict(state["model"])
        self._locate(state["step"])[0].optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])


def _rate_factor(done: float) -> float:
    """Share of the peak learning rate: linear warm-up, then a cosine down to `_FINAL_RATE`."""
    if done < _WARM_UP:
        return done / _WARM_UP + 1e-3
    cosine = 0.5 * (1 + math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP)))
    return _FINAL_RATE + (1 - _FINAL_RATE) * cosine


def _phases(
    model: "Qwen3VLForConditionalGeneration", collate: Collator, settings: BaseModelSettings
) -> tuple[_Phase, ...]:
    """Seeing; all kinds of image samples; drills and surprises, each against forgetting others."""
    lessons = settings.lessons
    batch, half = lessons.batch, lessons.batch // 2
    first = lessons.seed * _SEED_STRIDE
    second = first + lessons.steps * batch
    third = second + lessons.drill_steps * batch
    image = partial(image_sample, captions=_CAPTIONS[-1][1])
    language = partial(_language_phase, model, collate, lessons.learning_rate)
    return (
        _vision_phase(model, settings),
        language(lessons.steps, batch, _sorted_by_length(collate, lessons)),
        language(
            lessons.drill_steps,
            batch + 2 * half,
            _by_seed(drill_sample, first, batch),
            _by_seed(reading_sample, first, half),
            _by_seed(image, second, half),
        ),
        language(
            lessons.surprise_steps,
            2 * batch + half,
            _by_seed(partial(image, surprises=True), third, batch),
            _by_seed(drill_sample, third, half),
            _by_seed(partial(reading_sample, varied=True), third, batch),
        ),
    )


def _vision_phase(model: "Qwen3VLForConditionalGeneration", settings: BaseModelSettings) -> _Phase:
    """The vision tower alone, with probes that are not saved."""
    import torch

    lessons, tower = settings.lessons, model.model.visual
    probes = Probes(settings.architecture.hidden, lessons.seed)
    parameters = [*tower.parameters(), *probes.layers.parameters()]
    optimizer = torch.optim.AdamW(parameters, weight_decay=0.01)

    def loss(step: int) -> "torch.Tensor":
        seeds = _seeds(lessons.seed * _SEED_STRIDE, step, lessons.sight_batch)
        samples = [cell_sample(seed) for seed in seeds]
        inputs = pixels([sample.image for sample in samples])
        output = tower(inputs["pixel_values"], grid_thw=inputs["image_grid_thw"])
        return probes.loss([output.pooler_output, *output.deepstack_features], samples)

    steps, batch, peak = lessons.sight_steps, lessons.sight_batch, lessons.sight_learning_rate
    return _Phase(steps, batch, peak, optimizer, loss, resumable=False)


def _language_phase(
    model: "Qwen3VLForConditionalGeneration",
    collate: Collator,
    peak: float,
    steps: int,
    batch: int,
    *sources: _Source,
) -> _Phase:
    """The complete model: samples of every source in every step, with the same weight of each."""
    import torch

    def loss(step: int) -> "torch.Tensor":
        return torch.stack([model(**collate(source(step))).loss for source in sources]).sum()

    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    return _Phase(steps, batch, peak, optimizer, loss)


def _by_seed(make: Callable[[int], TrainingSample], first: int, batch: int) -> _Source:
    return lambda step: [make(seed) for seed in _seeds(first, step, batch)]


def _sorted_by_length(collate: Collator, lessons: PretrainingSettings) -> _Source:
    """Image samples, of which pools of several steps are sorted by length, against padding."""

    @lru_cache(maxsize=1)
    def pool(number: int) -> list[TrainingSample]:
        done = number * _POOL / lessons.steps
        captions = next(share for end, share in _CAPTIONS if done < end)
        seeds = _seeds(lessons.seed * _SEED_STRIDE, number, _POOL * lessons.batch)
        return sorted((image_sample(seed, captions) for seed in seeds), key=collate.length)

    def samples(step: int) -> list[TrainingSample]:
        number, position = divmod(step, _POOL)
        first = int(random_by("order", number).permutation(_POOL)[position]) * lessons.batch
        return pool(number)[first : first + lessons.batch]

    return samples


def _seeds(first: int, step: int, batch: int) -> range:
    return range(first + step * batch, first + (step + 1) * batch)
