"""LLaMA-Factory's files: its checkpoints, of which the newest complete one is resumed, and its log.

It writes weights, optimizer and random state first, then `trainer_state.json`, then the processor,
into `checkpoint-N`; a process killed in between leaves a part of that. LLaMA-Factory itself resumes
from the newest folder, so half-written ones must be moved away.
"""

import json
import re
import shutil
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from safetensors import SafetensorError, safe_open

from warehouse.atomic import atomic_write

from ..launch.driver import LogFollower, complete_checkpoints
from ..launch.jobs import TrainingProgress

LOG = "trainer_log.jsonl"
_NAME = re.compile(r"checkpoint-(\d+)")
_STATE = "trainer_state.json"
_MODEL_SUFFIXES = {".safetensors", ".json", ".jinja", ".txt"}
_LOSS_POINTS = 10  # last points whose mean is the final loss


def newest_checkpoint(checkpoints: Path, log: Callable[[str], object]) -> Path | None:
    """The newest complete checkpoint; half-written ones are moved to `*.broken`, and logged."""
    complete = complete_checkpoints(checkpoints, _NAME, is_complete, log)
    return complete[max(complete)] if complete else None


def is_complete(folder: Path) -> bool:
    """Whether every file that resuming needs is there, complete."""
    archives = [*folder.rglob("*.pt"), *folder.rglob("*.pth")]
    weights = list(folder.glob("*.safetensors"))
    return (
        _read_json(folder / _STATE).get("global_step") == step_of(folder)
        and bool(_read_json(folder / "processor_config.json"))
        and _has_optimizer(folder)
        and {path.name for path in weights} >= _weight_files(folder)
        and all(map(_is_complete_safetensors, weights))
        and all(map(zipfile.is_zipfile, archives))
    )


def step_of(folder: Path) -> int:
    """Optimizer steps behind a checkpoint."""
    return int(folder.name.rpartition("-")[2])


def is_final(folder: Path) -> bool:
    """Whether no step follows a complete checkpoint: all are done, or training stopped early."""
    state = _read_json(folder / _STATE)
    control = state.get("stateful_callbacks", {}).get("TrainerControl", {}).get("args", {})
    stopped = bool(control.get("should_training_stop"))
    return stopped or step_of(folder) >= int(state["max_steps"])


def best_checkpoint(newest: Path) -> Path:
    """The checkpoint with the lowest loss on rows that are not trained on, as the newest one says;
    the newest itself without such rows."""
    best = _read_json(newest / _STATE).get("best_model_checkpoint")
    return newest.with_name(Path(best).name) if best else newest


def dev_metrics(newest: Path) -> dict[str, float]:
    """Its loss on those rows, and its step; empty without them."""
    state = _read_json(newest / _STATE)
    if state.get("best_metric") is None:
        return {}
    return {"dev_loss": state["best_metric"], "best_step": step_of(best_checkpoint(newest))}


def copy_model(checkpoint: Path, model: Path) -> None:
    """Copy a checkpoint's model, without what only training needs, into a new folder."""
    model.mkdir(parents=True)
    for path in sorted(checkpoint.iterdir()):
        if path.suffix in _MODEL_SUFFIXES and path.name != _STATE:
            shutil.copy2(path, model / path.name)


def _has_optimizer(folder: Path) -> bool:
    """A file, or with DeepSpeed a folder that `latest` names."""
    latest = folder / "latest"
    if latest.is_file():
        return (folder / (latest.read_text("utf-8").strip() or "?")).is_dir()
    return (folder / "optimizer.pt").is_file() and (folder / "scheduler.pt").is_file()


def _weight_files(folder: Path) -> set[str]:
    """Names of the files with the weights: all shards, or the one file, or the adapters'."""
    if index := _read_json(folder / "model.safetensors.index.json"):
        return set(index["weight_map"].values())
    adapter = (folder / "adapter_config.json").exists()
    return {"adapter_model.safetensors" if adapter else "model.safetensors"}


def _is_complete_safetensors(path: Path) -> bool:
    """Whether a file is as long as its header says."""
    try:
        with safe_open(path, framework="np"):
            return True
    except SafetensorError:
        return False


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty where the file is missing or cut off."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@dataclass
class SftLogFollower(LogFollower):
    """Reads the log as it grows.

    Args:
        batch: samples per step.
        done: steps of earlier attempts, which are reported again, without a speed.
        clock: seconds of a monotonic clock.
    """

    batch: int
    done: int
    clock: Callable[[], float] = time.monotonic
    last: tuple[int, float] | None = None
    losses: list[float] = field(default_factory=list)

    def final_metrics(self) -> dict[str, float]:
        """Mean loss of the last points."""
        return {"loss": fmean(self.losses[-_LOSS_POINTS:])} if self.losses else {}

    def _point(self, record: dict[str, Any]) -> TrainingProgress | None:
        if "loss" not in record:  # the summary at the end
            return None
        step, total = record["current_steps"], record["total_steps"]
        self.losses.append(record["loss"])
        seconds = self._seconds_per_step(step) if step > self.done else None
        rest = self._seconds_left(total - step) if seconds else None
        return TrainingProgress(
            step=step,
            total=total,
            loss=record["loss"],
            learning_rate=record.get("lr"),
            samples_per_second=self.batch / seconds if seconds else None,
            seconds_left=rest,
            extra={"epoch": record["epoch"]} if "epoch" in record else {},
        )

    def _seconds_per_step(self, step: int) -> float | None:
        """Since the last point; None for the first one, whose start is unknown."""
        now, last = self.clock(), self.last
        self.last = (step, now)
        if last is None or now <= last[1] or step <= last[0]:
            return None
        self.step_seconds.append((now - last[1]) / (step - last[0]))
        return self.step_seconds[-1]


def truncate_log(log: Path, step: int) -> None:
    """Remove from a log the steps after the checkpoint that the next attempt starts from."""
    if not log.is_file():
        return
    lines = log.read_text("utf-8").splitlines()
    valid = [line for line in lines if _logged_step(line) <= step]
    if valid != lines:
        atomic_write(log, "".join(f"{line}\n" for line in valid))


def _logged_step(line: str) -> float:
    """Step of a line; infinite for a torn one."""
    try:
        return int(json.loads(line)["current_steps"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
