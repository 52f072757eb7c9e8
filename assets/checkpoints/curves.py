"""How training went, as plots: a panel for the loss, one for the reward."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from training.launch import TrainingProgress

from ..core.plotting import ACCENT, GOOD, OTHER, drawing, headline, png_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"loss": OTHER, "reward": GOOD}
_MEMORY = 0.9  # of the running mean, as a weight on what was before


def training_curves(curves: Sequence[TrainingProgress]) -> bytes | None:
    """Loss and reward by step, as a PNG; None when nothing was reported."""
    known = [name for name in _COLOURS if any(getattr(point, name) is not None for point in curves)]
    if not known:
        return None
    with drawing(1.2 + 2.2 * len(known), rows=len(known)) as (figure, axes):
        panels = list(axes) if len(known) > 1 else [axes]
        for panel, name in zip(panels, known, strict=True):
            _line(panel, curves, name)
        panels[-1].set_xlabel("step")
        headline(figure, f"{' and '.join(known).capitalize()} during training")
        return png_of(figure)


def _line(axes: "Axes", curves: Sequence[TrainingProgress], name: str) -> None:
    points = [(p.step, getattr(p, name)) for p in curves if getattr(p, name) is not None]
    steps, values = [step for step, _ in points], [value for _, value in points]
    axes.plot(steps, values, "-", color=_COLOURS[name], alpha=0.35, linewidth=1)
    axes.plot(steps, _smooth(values), "-", color=_COLOURS[name], label="running mean")
    axes.plot(steps[-1:], values[-1:], "o", color=ACCENT, label=f"last: {values[-1]:.4g}")
    axes.set_ylabel(name)
    axes.grid(axis="y")
    axes.legend(loc="best")


def _smooth(values: Sequence[float]) -> list[float]:
    return list(accumulate(values, lambda mean, value: _MEMORY * mean + (1 - _MEMORY) * value))
