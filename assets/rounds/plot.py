"""Success, cost and diversity by round."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas.rounds import RoundMeasure, RoundRow

from ..core.plotting import ACCENT, BAD, GOOD, OTHER, figure_png, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_VARIED = {"distinct_plans": OTHER, "distinct_refinements": GOOD, "distinct_images": ACCENT}


def rounds_plot(rows: Sequence[RoundRow], dev: str) -> bytes:
    """A panel each for final success, generator calls and diversity. `dev`: its benchmark.

    The first round's parents are round 0, where evaluation compared them.
    """
    panels = new_figure(6.2, "What each round changed", rows=[1, 1, 1])
    with panels as (figure, (success, cost, variety)):
        for benchmark, colour in ((dev, OTHER), (f"{dev.removesuffix('-dev')}-test", BAD)):
            _measure(success, rows, benchmark, "final_success", colour)
            _measure(cost, rows, benchmark, "generator_calls", colour)
        for name, colour in _VARIED.items():
            values = [getattr(row.diversity, name) for row in rows]
            variety.plot([row.round for row in rows], values, "o-", color=colour, label=name)
        titles = ("final success", "generator calls\na request", "diversity")
        for axes, title in zip((success, cost, variety), titles, strict=True):
            axes.set_ylabel(title)
            axes.grid(axis="y")
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="best", fontsize=8)
        variety.set_xlabel("round")
        variety.set_xticks([0, *(row.round for row in rows)])
        return figure_png(figure)


def _measure(
    axes: "Axes", rows: Sequence[RoundRow], benchmark: str, metric: str, colour: str
) -> None:
    points = [
        (row.round, each)
        for row in rows
        for each in row.measures
        if (each.benchmark, each.metric) == (benchmark, metric)
    ]
    if not points:
        return
    numbers = [number for number, _ in points]
    means = [each.mean for _, each in points]
    spread = [[m.mean - m.low for _, m in points], [m.high - m.mean for _, m in points]]
    axes.errorbar(numbers, means, yerr=spread, fmt="o-", color=colour, capsize=3, label=benchmark)
    if (start := _start(points[0])) is not None:
        axes.plot([numbers[0] - 1, numbers[0]], [start, means[0]], "o--", color=colour)


def _start(first: tuple[int, RoundMeasure]) -> float | None:
    """The mean of the agents that the first round began with."""
    number, measure = first
    if number != 1 or measure.difference is None:
        return None
    return measure.mean - measure.difference
