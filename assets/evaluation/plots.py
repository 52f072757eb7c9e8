"""Plots of an evaluation: a dot and an interval for every variant and metric."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.plotting import ACCENT, BAD, GOOD, INK, OTHER, PALE, drawing, headline, png_of
from .bootstrap import Interval
from .paper import MEASURE, TABLE_5
from .summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A panel each: its title, and its metrics with their colours.
_PANELS = (
    ("Final picture right", (("final_success", OTHER),)),
    (
        "Verdict right, of good\nand of bad pictures",
        (("verdict_accuracy_true", GOOD), ("verdict_accuracy_false", BAD)),
    ),
    ("Step reward", (("step_reward", ACCENT),)),
)


def interval_plot(summary: Summary, title: str) -> bytes:
    """Means with their intervals, a row a variant.

    Args:
        title: what was evaluated.
    """
    names = summary.variants
    with drawing(1.9 + 0.34 * len(names), columns=len(_PANELS)) as (figure, panels):
        headline(figure, title)
        for axes, (heading, metrics) in zip(panels, _PANELS, strict=True):
            axes.set_title(heading, fontsize=10)
            for place, (metric, colour) in enumerate(metrics):
                shift = 0.14 * (2 * place - len(metrics) + 1)
                _dots(axes, [summary.mean(name, metric) for name in names], shift, colour)
            _rows(axes, names if axes is panels[0] else [""] * len(names))
        panels[0].set_xlim(-0.03, 1.03)
        panels[1].set_xlim(-0.03, 1.03)
        return png_of(figure)


def beside_paper_plot(summary: Summary) -> bytes:
    """Final pictures that are right, here, beside UEval's score of pictures in table 5."""
    names = [name for name in TABLE_5 if name in summary.variants]
    with drawing(1.9 + 0.34 * len(names), columns=2) as (figure, (ours, theirs)):
        headline(figure, "What each part is good for")
        ours.set_title("Final pictures right, sketch world", fontsize=10)
        _dots(ours, [summary.mean(name, MEASURE) for name in names], 0.0, OTHER)
        ours.set_xlim(-0.03, 1.03)
        theirs.set_title("UEval of pictures, paper's table 5", fontsize=10)
        theirs.plot([TABLE_5[n].image for n in names], range(len(names)), "o", color=PALE)
        theirs.set_xlim(0, 100)
        _rows(ours, names)
        _rows(theirs, [""] * len(names))
        return png_of(figure)


def _dots(axes: "Axes", means: Sequence[Interval | None], shift: float, colour: str) -> None:
    for row, mean in enumerate(means):
        if mean is not None:
            axes.plot(
                [mean.low, mean.high], [row + shift] * 2, color=colour, linewidth=2, alpha=0.5
            )
            axes.plot(mean.mean, row + shift, "o", color=colour, markersize=5)


def _rows(axes: "Axes", names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, colors=INK)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
