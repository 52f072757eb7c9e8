"""What Dagster shows of a checkpoint: versions, model card, training curves, sampled rollouts."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import dagster as dg

from schemas.training import RolloutRow
from training.launch.jobs import TrainingProgress

from ..core.metadata import image_metadata, table_metadata
from ..core.plotting import ACCENT, GOOD, OTHER, figure_png, new_figure, set_headline
from .training import StoredCheckpoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_ROLLOUTS = 6
_COLOURS = {"loss": OTHER, "reward": GOOD}
_SMOOTHING = 0.9  # weight of earlier points in the running mean


def checkpoint_metadata(checkpoint: StoredCheckpoint) -> dict[str, Any]:
    """Versions, folder, model card, curves and final metrics."""
    row, record = checkpoint.row, checkpoint.record
    curves = training_curves(record.curves)
    return {
        "version": row.version,
        "status": row.status,
        "checkpoint": dg.MetadataValue.path(str(checkpoint.folder)),
        "parent": row.parent or "none",
        "data_set_version": row.dataset_version or "none",
        "data_set_rows": record.dataset_rows,
        "card": dg.MetadataValue.md((checkpoint.folder / "README.md").read_text("utf-8")),
        **({"curves": image_metadata(curves, "Loss and reward by step")} if curves else {}),
        **{f"metrics/{name}": value for name, value in record.metrics.items()},
    }


def rollout_samples(rows: Sequence[RolloutRow]) -> dg.MetadataValue:
    """The last sampled answers with their rewards, as a table."""
    columns = ("step", "status", "truth", "verdict", "refined_prompt", "reward", "response")
    samples = [{name: getattr(row, name) for name in columns} for row in rows[-_MAX_ROLLOUTS:]]
    return table_metadata(samples)


def training_curves(curves: Sequence[TrainingProgress]) -> bytes | None:
    """Loss and reward by step, as a PNG; None when neither was reported."""
    known = [name for name in _COLOURS if any(getattr(point, name) is not None for point in curves)]
    if not known:
        return None
    with new_figure(1.2 + 2.2 * len(known), rows=len(known)) as (figure, axes):
        panels = list(axes) if len(known) > 1 else [axes]
        for panel, name in zip(panels, known, strict=True):
            _curve(panel, curves, name)
        panels[-1].set_xlabel("step")
        set_headline(figure, f"{' and '.join(known).capitalize()} during training")
        return figure_png(figure)


def _curve(axes: "Axes", curves: Sequence[TrainingProgress], name: str) -> None:
    points = [(p.step, getattr(p, name)) for p in curves if getattr(p, name) is not None]
    steps, values = [step for step, _ in points], [value for _, value in points]
    means = list(accumulate(values, lambda m, value: _SMOOTHING * m + (1 - _SMOOTHING) * value))
    axes.plot(steps, values, "-", color=_COLOURS[name], alpha=0.35, linewidth=1)
    axes.plot(steps, means, "-", color=_COLOURS[name], label="running mean")
    axes.plot(steps[-1:], values[-1:], "o", color=ACCENT, label=f"last: {values[-1]:.4g}")
    axes.set_ylabel(name)
    axes.grid(axis="y")
    axes.legend(loc="best")
