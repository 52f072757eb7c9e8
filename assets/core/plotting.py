"""Plots for asset metadata: their style, bars, and PNG bytes small enough to embed.

matplotlib is imported when the first figure is made.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, PALE, PAPER = "#26324b", "#8a93a6", "#ffffff"
GOOD, BAD, OTHER, ACCENT = "#2a9d8f", "#d9634c", "#4c78a8", "#e9a23b"
STATUS_COLOURS = {
    "complete": GOOD,
    "exhausted": ACCENT,
    "stopped": PALE,
    "refused": PALE,
    "quarantined": BAD,
    "failed": BAD,
}

_WIDTH_INCHES, _DPI = 7.0, 144
_PALETTE_STEP = 3  # of the pixels that a palette is made from
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.titlecolor": INK,
    "figure.titlesize": 12.5,
    "figure.titleweight": "bold",
    "axes.labelcolor": INK,
    "axes.edgecolor": PALE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#e6e9ef",
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.12,
}


def small_png(image: Image.Image, colours: int = 128) -> bytes:
    """A palette PNG, a third of the size; its colours are refined, so that rare ones survive."""
    buffer, rgb = io.BytesIO(), image.convert("RGB")
    size = [max(1, side // _PALETTE_STEP) for side in rgb.size]  # refining all pixels takes seconds
    sample = rgb.resize((size[0], size[1]), Image.Resampling.NEAREST)
    palette = sample.quantize(colours, kmeans=1, dither=Image.Dither.NONE)
    rgb.quantize(palette=palette, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


@contextmanager
def new_figure(
    height: float, headline: str = "", columns: int = 1, rows: Sequence[float] = (1,)
) -> Iterator[tuple["Figure", Any]]:
    """A figure in our style, without pyplot's global state, and its axes (an array if several).

    `height` is in inches, `rows` are relative; `headline` stands at the left edge, where it may be
    long.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(_WIDTH_INCHES, height), dpi=_DPI, layout="constrained")
        if headline:
            figure.suptitle(headline, x=0.015, ha="left")
        axes = figure.subplots(len(rows), columns, sharex=len(rows) > 1, height_ratios=rows)
        yield figure, axes


def figure_png(figure: "Figure") -> bytes:
    raw = io.BytesIO()
    figure.savefig(raw, format="png", facecolor=PAPER)
    return small_png(Image.open(raw))


def status_counts(counts: Mapping[str, int], what: str = "trajectories") -> bytes:
    """A bar per status; known statuses have their own colour."""
    colours = [STATUS_COLOURS.get(status, OTHER) for status in counts]
    return named_bars(counts, colours, f"{what.capitalize()} by status", what)


def named_bars(counts: Mapping[str, int], colours: Sequence[str], title: str, what: str) -> bytes:
    total = sum(counts.values()) or 1
    with new_figure(_height(len(counts)), title) as (figure, axes):
        bars = axes.barh(range(len(counts)), list(counts.values()), 0.65, color=colours)
        labels = [f"{n:,}  ({n / total:.1%})" for n in counts.values()]
        axes.bar_label(bars, labels, padding=4, fontsize=9.5, color=INK)
        label_rows(axes, list(counts))
        axes.set_xlim(0, max(axes.get_xlim()[1] * 1.16, 1))
        axes.set_xlabel(what)
        return figure_png(figure)


def _height(bars: int) -> float:
    return 1.35 + 0.36 * max(bars, 1)  # inches


def plot_mean(
    axes: "Axes", height: float, colour: str, mean: float, low: float | None, high: float | None
) -> None:
    """A dot, on a line from `low` to `high` where these are known."""
    if low is not None and high is not None:
        axes.plot([low, high], [height] * 2, color=colour, linewidth=2, alpha=0.5)
    axes.plot(mean, height, "o", color=colour, markersize=5)


def label_rows(axes: "Axes", names: Sequence[str]) -> None:
    """Name rows at heights 0, 1, ..., from the top downwards."""
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, colors=INK)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
