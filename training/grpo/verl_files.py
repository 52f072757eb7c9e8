"""verl's files: the rows it reads, its checkpoints, and its metrics as points of curves.

verl writes `global_step_N/actor/*.pt`, then `global_step_N/data.pt`, then the number N into
`latest_checkpointed_iteration.txt`; a process killed in between leaves a part of that.
"""

import math
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import FoundryError
from warehouse import Journal
from warehouse.atomic import atomic_path, atomic_write

from ..launch.driver import LogFollower, complete_checkpoints
from ..launch.jobs import TrainingProgress
from ..rewards.rollouts import Rollout, step_figures
from .recipe import ROWS, GrpoSettings

_CHUNK_ROWS = 256  # each with two images in memory
_CHECKPOINT = re.compile(r"global_step_(\d+)")
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
}


def total_steps(export: Path, settings: GrpoSettings) -> int:
    """Steps of a complete run: one epoch, or `max_steps` where that is less.

    Raises:
        FoundryError: there is no export, or it has fewer rows than a batch.
    """
    source = export / ROWS
    if not source.is_file():
        raise FoundryError(f"{source} is missing: materialize `exports`")
    rows = pq.read_metadata(source).num_rows
    if rows < settings.batch:
        raise FoundryError(f"{source} has {rows} rows, fewer than a batch of {settings.batch}")
    epoch = rows // settings.batch
    return min(epoch, settings.max_steps or epoch)


def write_rows(export: Path, target: Path, settings: GrpoSettings) -> None:
    """Write the rows of all steps to `target`, once; verl reads them from first to last.

    Images carry `max_pixels`, to which verl's loader (qwen_vl_utils) shrinks them, so that the
    policy sees what it saw in supervised training. Paths become absolute.
    """
    if target.is_file():
        return
    table = pq.read_table(export / ROWS)
    count = total_steps(export, settings) * settings.batch
    order = Random(settings.seed).sample(range(table.num_rows), count)
    batches = (table.take(order[i : i + _CHUNK_ROWS]) for i in range(0, count, _CHUNK_ROWS))
    chunks = (_with_max_pixels(batch, export, settings.image_max_pixels) for batch in batches)
    first = next(chunks)
    with (
        atomic_path(target, target.with_suffix(".partial")) as draft,
        pq.ParquetWriter(draft, first.schema, compression="zstd") as writer,
    ):
        for chunk in chain((first,), chunks):
            writer.write_table(chunk)


def resume_step(checkpoints: Path, log: Callable[[str], object]) -> int:
    """Make verl resume from the newest complete checkpoint; returns its step, 0 without one.

    Half-written ones are moved to `global_step_N.broken`, and logged.
    """
    newest = max(complete_checkpoints(checkpoints, _CHECKPOINT, _is_complete, log), default=0)
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


@dataclass
class GrpoLogFollower(LogFollower):
    """Reads verl's metrics file as it grows.

    Args:
        total: steps of the complete run.
        rollouts: the rewarded rollouts of a step; none where another process rewarded them.
    """

    total: int
    settings: GrpoSettings
    rollouts: Callable[[int], Sequence[Rollout]]

    def _point(self, record: dict[str, Any]) -> TrainingProgress:
        step, metrics = record["step"], record["data"]
        seconds = float(metrics["timing_s/step"])
        self.step_seconds.append(seconds)
        values = {name: _finite(metrics.get(key)) for name, key in _EXTRA.items()}
        extra = {name: value for name, value in values.items() if value is not None}
        rewards = step_figures(self.rollouts(step), seconds)
        return TrainingProgress(
            step=step,
            total=self.total,
            loss=_finite(metrics.get("actor/pg_loss")),
            reward=rewards.pop("reward", None),
            learning_rate=metrics.get("actor/lr"),
            samples_per_second=self.settings.batch * self.settings.n / seconds,
            seconds_left=self._seconds_left(self.total - step),
            extra=extra | rewards,
        )


def _with_max_pixels(table: pa.Table, export: Path, pixels: int) -> pa.Table:
    def sized(image: dict[str, Any]) -> dict[str, Any]:
        if "image" in image:
            image = {"image": str((export / image["image"]).absolute())}
        return {**image, "max_pixels": pixels}

    column = [list(map(sized, images)) for images in table.column("images").to_pylist()]
    return table.set_column(table.column_names.index("images"), "images", pa.array(column))


def _finite(value: float | None) -> float | None:
    """None also for what verl cannot tell: NaN where no rollout of an update has a reward."""
    return float(value) if value is not None and math.isfinite(value) else None


def _is_complete(folder: Path) -> bool:
    """Whether the last file is there, and every archive has its directory, which is its end."""
    archives = [*folder.glob("actor/*.pt"), folder / "data.pt"]
    kinds = {path.name.split("_")[0] for path in archives}
    return {"model", "optim", "extra"} <= kinds and all(map(zipfile.is_zipfile, archives))
