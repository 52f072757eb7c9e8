"""Charts of the training sets for asset metadata, as PNG bytes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.plotting import ACCENT, BAD, GOOD, INK, OTHER, figure_png, named_bars, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SFT, RL = GOOD, ACCENT


def filter_counts(passed: int, dropped: Mapping[str, int]) -> bytes:
    """Steps that passed the filter, and those that each of its rules dropped."""
    by_size = dict(sorted(dropped.items(), key=lambda item: -item[1]))
    colours = [GOOD, *[BAD] * len(by_size)]
    bars = {"kept": passed, **by_size}
    return named_bars(bars, colours, "Steps kept, and dropped by rule", "steps")


def variance_histogram(
    edges: Sequence[float], counts: Sequence[int], theta: float | None, what: str = "steps"
) -> bytes:
    """Variance of iteration scores; left of θ, if any, goes to SFT, right to RL (paper, 3.2)."""
    with new_figure(3.4, f"Variance of a {what.removesuffix('s')}'s scores") as (figure, axes):
        axes.grid(axis="y")
        if theta is None:
            axes.stairs(counts, edges, fill=True, color=OTHER)
        else:
            _two_sided(axes, edges, counts, theta)
        _count_axis(axes, counts, what)
        axes.set_xlabel("variance of the overall scores of the iterations")
        return figure_png(figure)


def balance_by_iteration(rows: Sequence[Mapping[str, int]]) -> bytes:
    """Verdicts of every `iteration`: columns `{accepted,rejected}_{before,after}` (balancing)."""
    iterations = _column(rows, "iteration")
    with new_figure(3.4, columns=2) as (figure, panels):
        for axes, when in zip(panels, ("before", "after"), strict=True):
            for shift, verdict, colour in ((-0.2, "accepted", GOOD), (0.2, "rejected", BAD)):
                heights = _column(rows, f"{verdict}_{when}")
                places = [iteration + shift for iteration in iterations]
                bars = axes.bar(places, heights, 0.38, color=colour, label=verdict)
                axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8, color=INK, rotation=90)
            axes.set(title=f"Verdicts {when} balancing", xticks=iterations, xlabel="iteration")
            axes.margins(y=0.2)
            axes.grid(axis="y")
        panels[0].set_ylabel("samples")
        panels[0].legend(loc="upper right")
        return figure_png(figure)


def score_by_iteration(rows: Sequence[Mapping[str, float]]) -> bytes:
    """Overall score (0-10) by iteration: mean, median, quartiles; and the number of attempts."""
    panels = new_figure(4.2, "Overall score by iteration", rows=(2.6, 1))
    with panels as (figure, (scores, attempts)):
        _score_lines(scores, rows)
        iterations, counts = _column(rows, "iteration"), _column(rows, "attempts")
        bars = attempts.bar(iterations, counts, 0.55, color=OTHER, edgecolor=OTHER)
        attempts.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=9, color=INK)
        attempts.margins(y=0.35)
        attempts.set(xlabel="iteration", ylabel="attempts", yticks=[])
        return figure_png(figure)


def _two_sided(axes: "Axes", edges: Sequence[float], counts: Sequence[int], theta: float) -> None:
    """The same histogram twice, each clipped to its side, so that θ may lie within a bin."""
    from matplotlib.patches import Rectangle

    top, far = max(counts, default=0) * 2 + 1, edges[-1] - edges[0] + 1
    sides = (theta - far, "SFT (at most θ)", SFT), (theta, "RL (above θ)", RL)
    for start, label, colour in sides:
        area = axes.stairs(counts, edges, fill=True, color=colour, label=label)
        area.set_clip_path(Rectangle((start, 0), far, top, transform=axes.transData))
    axes.axvline(theta, color=INK, linestyle="--", linewidth=1.4, label=f"θ = {theta:.3g}")
    axes.legend(loc="upper right")


def _count_axis(axes: "Axes", counts: Sequence[int], what: str) -> None:
    """Logarithmic above 10 where one bin is far larger than the median one."""
    filled = sorted(count for count in counts if count)
    steep = bool(filled) and filled[-1] > 20 * filled[len(filled) // 2]
    if steep:
        axes.set_yscale("symlog", linthresh=10)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"{what}, log scale" if steep else what)


def _score_lines(axes: "Axes", rows: Sequence[Mapping[str, float]]) -> None:
    iterations = _column(rows, "iteration")
    lower, upper = _column(rows, "lower_quartile"), _column(rows, "upper_quartile")
    area = axes.fill_between(iterations, lower, upper, color=OTHER, alpha=0.18, linewidth=0)
    area.set_label("middle half")
    axes.plot(iterations, _column(rows, "median"), "o-", color=OTHER, label="median")
    axes.plot(iterations, _column(rows, "mean"), "s--", color=ACCENT, label="mean", markersize=5)
    axes.set(ylabel="overall score", ylim=(0, 10.4))
    axes.set_xticks(iterations)
    axes.set_xlim(min(iterations, default=0) - 0.5, max(iterations, default=0) + 0.5)
    axes.grid(axis="y")
    axes.legend(loc="lower right", ncols=3)


def _column(rows: Sequence[Mapping[str, float]], name: str) -> list[float]:
    return [row[name] for row in rows]
