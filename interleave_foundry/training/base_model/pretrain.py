"""Teach the tiny model to see and to read: plain PyTorch, a few million parameters, no trainer.

Deterministic by seed (on one kind of machine): lessons, their order and the first weights follow
from it. A killed run goes on from its last saved state.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ...inference.sketch.chance import random_by
from .architecture import MERGE, PATCH, build_model, build_processor
from .lessons import Lesson, lesson
from .settings import BaseModelSettings
from .vocabulary import build_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import Qwen2Tokenizer, Qwen3VLForConditionalGeneration

_WARM_UP = 0.05
_LAST_RATE = 0.02  # share of the peak learning rate that is left at the end
_REPORT_EVERY = 20
_SAVE_EVERY = 500
_POOL = 16  # steps whose lessons are sorted by length together
_STATE = "state.pt"
# Captions alone at first: what has been seen once helps everything after it.
_CAPTIONS = ((0.25, 0.8), (1.0, 0.3))


@dataclass(frozen=True)
class Taught:
    """How far the lessons are: `loss` is the mean since the last report."""

    step: int
    total: int
    loss: float
    learning_rate: float
    samples_per_second: float


def pretrain(
    folder: Path, settings: BaseModelSettings, report: Callable[[Taught], object]
) -> dict[str, float]:
    """Write the taught model to `folder` in Hugging Face format (bfloat16 weights).

    Returns:
        Final metrics: loss and samples seen.
    """
    import torch

    torch.set_num_threads(settings.lessons.threads)
    tokenizer = build_tokenizer(settings.architecture.vocabulary)
    model = build_model(settings.architecture, tokenizer, settings.lessons.seed)
    metrics = _Course(model, tokenizer, settings, folder).teach(report)
    model.bfloat16().save_pretrained(folder)
    build_processor(settings.architecture, tokenizer).save_pretrained(folder)
    (folder / _STATE).unlink(missing_ok=True)
    return metrics


class _Course:
    """The lessons of one model, from first to last step."""

    def __init__(
        self,
        model: "Qwen3VLForConditionalGeneration",
        tokenizer: "Qwen2Tokenizer",
        settings: BaseModelSettings,
        folder: Path,
    ) -> None:
        import torch

        self._model, self._settings = model, settings.lessons
        self._batches = Batches(tokenizer)
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.01)
        self._pools: dict[int, list[Lesson]] = {}
        self._half = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self._state = folder / _STATE
        self._identity = json.dumps(settings.model_dump(mode="json"), sort_keys=True)
        folder.mkdir(parents=True, exist_ok=True)

    def teach(self, report: Callable[[Taught], object]) -> dict[str, float]:
        total, batch = self._settings.steps, self._settings.batch
        losses: list[float] = []
        last = 0.0
        begun = time.perf_counter()
        for step in range(self._restored(), total):
            losses.append(self._step(step))
            if (step + 1) % _REPORT_EVERY == 0 or step + 1 == total:
                pace = len(losses) * batch / (time.perf_counter() - begun)
                mean = sum(losses) / len(losses)
                report(Taught(step + 1, total, mean, self._rate(step), pace))
                last = mean
                losses, begun = [], time.perf_counter()
            if (step + 1) % _SAVE_EVERY == 0:
                self._save(step + 1)
        return {"loss": last, "samples": float(total * batch)}

    def _step(self, step: int) -> float:
        import torch

        for group in self._optimizer.param_groups:
            group["lr"] = self._rate(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._half):
            loss = self._model(**self._batches.of(self._lessons(step))).loss
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        return loss.item()

    def _lessons(self, step: int) -> list[Lesson]:
        """The step's share of a pool of lessons that is sorted by length, against padding."""
        pool, place = divmod(step, _POOL)
        if pool not in self._pools:
            self._pools = {pool: self._pool(pool)}
        batch, order = self._settings.batch, random_by("order", pool).permutation(_POOL)
        first = int(order[place]) * batch
        return self._pools[pool][first : first + batch]

    def _pool(self, pool: int) -> list[Lesson]:
        done = pool * _POOL / self._settings.steps
        share = next(share for end, share in _CAPTIONS if done < end)
        first = self._settings.seed * 10**9 + pool * _POOL * self._settings.batch
        seeds = range(first, first + _POOL * self._settings.batch)
        return sorted((lesson(seed, share) for seed in seeds), key=self._batches.length)

    def _rate(self, step: int) -> float:
        """Linear warm-up, then a cosine down to a small rest."""
        done = step / self._settings.steps
        if done < _WARM_UP:
            return self._settings.learning_rate * (done / _WARM_UP + 1e-3)
        falling = 0.5 * (1 + math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP)))
        return self._settings.learning_rate * (_LAST_RATE + (1 - _LAST_RATE) * falling)

    def _save(self, step: int) -> None:
        import torch

        state = {
            "identity": self._identity,
            "step": step,
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        temporary = self._state.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self._state)

    def _restored(self) -> int:
        """Steps done by an earlier run with the same settings."""
        import torch

        if not self._state.exists():
            return 0
        state = torch.load(self._state, weights_only=True)
        if state["identity"] != self._identity:
            return 0
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])


class Batches:
    """Lessons as padded tensors; the loss counts the answers alone."""

    def __init__(self, tokenizer: "Qwen2Tokenizer") -> None:
        self._tokenizer = tokenizer
        ids = tokenizer.get_vocab()
        self._image, self._pad = ids["<|image_pad|>"], ids["<|endoftext|>"]

    def of(self, lessons: Sequence[Lesson]) -> dict[str, Any]:
        """Model inputs: ids, mask, labels of shape (lessons, length); patches of all pictures."""
        import torch

        turns = [self._turns(lesson) for lesson in lessons]
        length = max(len(asked) + len(answered) for asked, answered in turns)
        ids = torch.full((len(turns), length), self._pad)
        mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
        for row, (asked, answered) in enumerate(turns):
            end = len(asked) + len(answered)
            ids[row, :end] = torch.tensor(asked + answered)
            mask[row, :end] = 1
            labels[row, len(asked) : end] = torch.tensor(answered)
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "labels": labels,
            "mm_token_type_ids": (ids == self._image).long(),
            **_pixels([picture for lesson in lessons for picture in lesson.pictures]),
        }

    def length(self, lesson: Lesson) -> int:
        """Tokens of a lesson."""
        return sum(map(len, self._turns(lesson)))

    def _turns(self, lesson: Lesson) -> tuple[list[int], list[int]]:
        """Ids of the user's turn and of the answer, in Qwen's chat format."""
        marks = "".join(
            f"<|vision_start|>{'<|image_pad|>' * _tokens(picture)}<|vision_end|>"
            for picture in lesson.pictures
        )
        question = f"\nGoal: {lesson.question}" if lesson.question else ""
        asked = f"<|im_start|>user\n{marks}{question}<|im_end|>\n<|im_start|>assistant\n"
        answered = f"{lesson.answer}<|im_end|>"
        return self._ids(asked), self._ids(answered)

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])


def _tokens(picture: Image.Image) -> int:
    """Visual tokens of a picture."""
    side = PATCH * MERGE
    return (picture.width // side) * (picture.height // side)


def _pixels(pictures: Sequence[Image.Image]) -> "dict[str, torch.Tensor]":
    """Patches as Qwen's image processor cuts them: (all patches, channels x 2 frames x 16 x 16)."""
    import torch

    cut = [_patches(picture) for picture in pictures]
    grids = [(1, p.height // PATCH, p.width // PATCH) for p in pictures]
    return {
        "pixel_values": torch.from_numpy(np.concatenate(cut)),
        "image_grid_thw": torch.tensor(grids),
    }


def _patches(picture: Image.Image) -> np.ndarray:
    pixels = np.asarray(picture, dtype=np.float32).transpose(2, 0, 1) / 127.5 - 1
    channels, rows, columns = 3, picture.height // PATCH, picture.width // PATCH
    frames = np.broadcast_to(pixels, (2, *pixels.shape))
    blocks = frames.reshape(
        2, channels, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH
    )
    # row blocks, column blocks, rows and columns within a block, channels, frames, pixels
    ordered = blocks.transpose(2, 5, 3, 6, 1, 0, 4, 7)
    return ordered.reshape(rows * columns, channels * 2 * PATCH * PATCH)
