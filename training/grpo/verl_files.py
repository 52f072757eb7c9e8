"""verl's files: its checkpoints, its metrics as points of curves, and which checkpoint is best.

verl writes `global_step_N/actor/*.pt`, then `global_step_N/data.pt`, then the number N into
`latest_checkpointed_iteration.txt`; a process killed in between leaves a part of that.
"""

import math
import re
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from inference.backends.checkpoint.model import load_weights
from warehouse import Journal
from warehouse.atomic import atomic_write

from ..launch.driver import LogFollower, complete_checkpoints
from ..launch.jobs import TrainingProgress
from ..rewards.rollouts import DEV_REWARD, Rollout, dev_figures, step_figures
from .recipe import STOP, GrpoSettings

CHECKPOINT_NAME = re.compile(r"global_step_(\d+)")
# Name of a curve -> verl's metric.
_EXTRA = {
    "entropy": "actor/entropy_loss",
    "kl": "actor/kl_loss",
    "policy_change": "actor/ppo_kl",
    "clipped_share": "actor/pg_clipfrac",
    "gradient_norm": "actor/grad_norm",
    "response_tokens": "response_length/mean",
    "cut_off_share": "response_length/clip_ratio",
    "seconds": "timing_s/step",
    "generation_seconds": "timing_s/gen",
    "update_seconds": "timing_s/update_actor",
    "evaluation_seconds": "timing_s/testing",
}
_REMOVED = ".removed"
_WEIGHTS = "*.safetensors*"  # and their index
_FINAL_STEPS = 10  # last steps whose mean is a final figure


def resume_step(checkpoints: Path, log: Callable[[str], object]) -> int:
    """Make verl resume from the newest complete checkpoint; returns its step, 0 without one.

    Half-written ones are moved to `global_step_N.broken`, and logged.
    """
    newest = max(complete_checkpoints(checkpoints, CHECKPOINT_NAME, _is_complete, log), default=0)
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    if newest:
        atomic_write(tracker, str(newest))
    else:
        tracker.unlink(missing_ok=True)
    return newest


def points_up_to(step: int, curves: Journal) -> list[TrainingProgress]:
    """Every step up to this one once, as of the last attempt that trained it."""
    points = map(TrainingProgress.model_validate, curves.records())
    last = {point.step: point for point in points if point.step <= step}
    return [last[number] for number in sorted(last)]


def final_metrics(points: Sequence[TrainingProgress], best: int | None) -> dict[str, float]:
    """Mean figures of the last steps; those of the evaluation of the best checkpoint, if any."""
    last = points[-_FINAL_STEPS:]
    names = sorted({name for point in last for name in point.extra if not _is_dev(name)})
    metrics = {name: fmean(p.extra[name] for p in last if name in p.extra) for name in names}
    rewards = [point.reward for point in last if point.reward is not None]
    if rewards:
        metrics["reward"] = fmean(rewards)
    if best is not None:
        figures = next(point.extra for point in points if point.step == best)
        metrics |= {name: value for name, value in figures.items() if _is_dev(name)}
        metrics["best_step"] = float(best)
    return metrics | {"steps": float(points[-1].step if points else 0)}


@dataclass
class GrpoLogFollower(LogFollower):
    """Reads verl's metrics file as it grows.

    Args:
        total: steps of the complete run.
        rollouts: the rewarded rollouts of a step; none where another process rewarded them.
        evaluation: the answers, after a step, to rows that are not trained on.
    """

    total: int
    settings: GrpoSettings
    rollouts: Callable[[int], Sequence[Rollout]]
    evaluation: Callable[[int], Sequence[Rollout]]

    def _point(self, record: dict[str, Any]) -> TrainingProgress:
        step, metrics = record["step"], record["data"]
        seconds = float(metrics["timing_s/step"])
        self.step_seconds.append(seconds)
        metrics.setdefault("actor/entropy_loss", metrics.get("actor/entropy"))  # before the update
        values = {name: _finite(metrics.get(key)) for name, key in _EXTRA.items()}
        extra = {name: value for name, value in values.items() if value is not None}
        rewards = step_figures(self.rollouts(step))
        return TrainingProgress(
            step=step,
            total=self.total,
            loss=_finite(metrics.get("actor/pg_loss")),
            reward=rewards.pop("reward", None),
            learning_rate=metrics.get("actor/lr"),
            samples_per_second=self.settings.batch * self.settings.n / seconds,
            seconds_left=self._seconds_left(self.total - step),
            extra=extra | rewards | dev_figures(self.evaluation(step)),
        )


@dataclass(frozen=True)
class DevEvaluations:
    """Those of a run, as the points of its curves have them.

    Args:
        patience: evaluations without a higher reward after which training stops; None: it does not.
    """

    curves: Journal
    checkpoints: Path
    patience: int | None

    def best(self, done: int) -> int | None:
        """Step of the checkpoint with the highest reward, the first of equals; None where no
        checkpoint of the `done` steps was evaluated."""
        rewards = {
            step: reward
            for step, reward in self._rewards(done).items()
            if (self.checkpoints / f"global_step_{step}").is_dir()
        }
        return max(rewards, key=rewards.__getitem__, default=None)

    def stop_training(self, done: int) -> bool:
        """Whether so many evaluations in a row, of the `done` steps, had no higher reward."""
        highest, waited = -math.inf, 0
        for reward in self._rewards(done).values():
            waited = 0 if reward > highest else waited + 1
            highest = max(highest, reward)
            if waited == self.patience:
                return True
        return False

    def conclude(self, step: int, log: Callable[[str], object]) -> None:
        """After an evaluation: remove worse checkpoints; ask verl to end where it is time to."""
        best = self.best(step)
        self._remove_before(step, best)
        if self.stop_training(step):
            log(f"step {step}: no better than step {best}, so training stops")
            (self.checkpoints / STOP).touch()

    def _rewards(self, done: int) -> dict[int, float]:
        points = points_up_to(done, self.curves)
        return {p.step: p.extra[DEV_REWARD] for p in points if DEV_REWARD in p.extra}

    def _remove_before(self, newest: int, best: int | None) -> None:
        """Renamed first: a removal that is cut short leaves no checkpoint in part."""
        for match in [CHECKPOINT_NAME.fullmatch(path.name) for path in self.checkpoints.iterdir()]:
            if match and int(match[1]) < newest and int(match[1]) != best:
                path = self.checkpoints / match[0]
                path.rename(path.with_name(f"{path.name}{_REMOVED}"))
        for removed in self.checkpoints.glob(f"*{_REMOVED}"):
            shutil.rmtree(removed, ignore_errors=True)


def average_with_parent(model: Path, parent: Path, share: float) -> None:
    """Make the weights of a folder those of `parent` by this share, and its own by the rest.

    Between both, a model keeps most of what it learned and forgets less of what its parent knew
    (Wortsman et al., Robust fine-tuning of zero-shot models, 2022). Both are in memory at once.
    """
    import torch

    own, start = (load_weights(folder, dtype="auto") for folder in (model, parent))
    theirs = dict(start.named_parameters())
    with torch.no_grad():  # in float32: bfloat16 would round small changes away
        for name, ours in own.named_parameters():  # tied ones once
            ours.copy_(torch.lerp(ours.float(), theirs[name].float(), share))
    with TemporaryDirectory(dir=model.parent) as folder:  # the model's files may be mapped
        own.save_pretrained(folder)
        for path in model.glob(_WEIGHTS):
            path.unlink()
        for path in Path(folder).glob(_WEIGHTS):
            path.replace(model / path.name)


def _is_dev(name: str) -> bool:
    return name.startswith("dev_")


def _finite(value: float | None) -> float | None:
    """None also for what verl cannot tell: NaN where no rollout of an update has a reward."""
    return float(value) if value is not None and math.isfinite(value) else None


def _is_complete(folder: Path) -> bool:
    """Whether the last file is there, and every archive has its directory, which is its end."""
    archives = [*folder.glob("actor/*.pt"), folder / "data.pt"]
    kinds = {path.name.split("_")[0] for path in archives}
    return {"model", "optim", "extra"} <= kinds and all(map(zipfile.is_zipfile, archives))
