"""Charts for asset metadata, as PNG bytes in the style of `plotting.py`."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING

from .plotting import ACCENT, BAD, GOOD, INK, OTHER, PALE, PAPER, figure_png, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SFT, RL = GOOD, ACCENT
STATUS_COLOURS = {
    "complete": GOOD,
    "exhausted": ACCENT,
    "stopped": PALE,
    "refused": PALE,
    "quarantined": BAD,
    "failed": BAD,
}
CATEGORY_COLOURS = (OTHER, GOOD, ACCENT, BAD, "#8d6cab", "#5b9bd5", "#7a9e4f", "#c77b9a")


def counts_by_category(counts: Mapping[str, Mapping[str, int]], what: str = "prompts") -> bytes:
    """A bar per category, divided into its sub-categories (category -> sub-category -> count)."""
    headline = f"{what.capitalize()} by category and sub-category"
    with new_figure(_height(len(counts)), headline) as (figure, axes):
        widest = max((sum(members.values()) for members in counts.values()), default=0)
        for row, members in enumerate(counts.values()):
            colour, total = CATEGORY_COLOURS[row % len(CATEGORY_COLOURS)], 0
            for count in members.values():
                axes.barh(row, count, 0.7, total, color=colour, edgecolor=PAPER, linewidth=0.9)
                total += count
            low, high = min(members.values(), default=0), max(members.values(), default=0)
            each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            note = f"{total:,}  ({len(members)} of {each})"
            axes.text(total + widest * 0.012, row, note, va="center", fontsize=9)
        _name_rows(axes, list(counts), right_margin=0.4)
        axes.set_xlabel("in brackets: the sub-categories, and how many each has")
        return figure_png(figure)


def status_counts(counts: Mapping[str, int], what: str = "trajectories") -> bytes:
    """A bar per status; known statuses have their own colour."""
    colours = [STATUS_COLOURS.get(status, OTHER) for status in counts]
    return _named_bars(counts, colours, f"{what.capitalize()} by status", what)


def filter_counts(passed: int, dropped: Mapping[str, int]) -> bytes:
    """Steps that passed the filter, and those that each of its rules dropped."""
    by_size = dict(sorted(dropped.items(), key=lambda item: -item[1]))
    colours = [GOOD, *[BAD] * len(by_size)]
    bars = {"kept": passed, **by_size}
    return _named_bars(bars, colours, "Steps kept, and dropped by rule", "steps")


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


def agreement_map(
    names: Sequence[str], correlations: Mapping[tuple[str, str], float | None]
) -> bytes:
    """A matrix of rank correlations (-1 to 1; None: unknown), greener for better agreement."""
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap

    known = {frozenset(pair): value for pair, value in correlations.items()}
    colours = LinearSegmentedColormap.from_list("agreement", [BAD, PAPER, GOOD])
    headline = "Rank correlation of the scorers' overall scores"
    with new_figure(1.6 + 0.7 * len(names), headline) as (figure, axes):
        cells = [[known.get(frozenset((a, b))) for b in names] for a in names]
        axes.imshow(np.array(cells, float), cmap=colours, vmin=-1, vmax=1)
        for row, column in permutations(range(len(names)), 2):
            value = cells[row][column]
            label = "unknown" if value is None else f"{value:.2f}"
            axes.text(column, row, label, ha="center", va="center")
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(length=0)
        axes.set_xlabel("1: same order; 0: uncorrelated; -1: reverse order")
        return figure_png(figure)


def _named_bars(counts: Mapping[str, int], colours: Sequence[str], title: str, what: str) -> bytes:
    total = sum(counts.values()) or 1
    with new_figure(_height(len(counts)), title) as (figure, axes):
        bars = axes.barh(range(len(counts)), list(counts.values()), 0.65, color=colours)
        labels = [f"{n:,}  ({n / total:.1%})" for n in counts.values()]
        axes.bar_label(bars, labels, padding=4, fontsize=9.5, color=INK)
        _name_rows(axes, list(counts), right_margin=0.16)
        axes.set_xlabel(what)
        return figure_png(figure)


def _name_rows(axes: "Axes", names: Sequence[str], right_margin: float) -> None:
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlim(0, max(axes.get_xlim()[1] * (1 + right_margin), 1))


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


def _height(bars: int) -> float:
    return 1.35 + 0.36 * max(bars, 1)  # inches
