"""The style of every plot: colours, axes, and PNG bytes small enough to embed in metadata.

matplotlib is imported when the first figure is made.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, PALE, PAPER = "#26324b", "#8a93a6", "#ffffff"
GOOD, BAD, OTHER, ACCENT = "#2a9d8f", "#d9634c", "#4c78a8", "#e9a23b"

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
