"""Charts: small, reproducible PNGs that show what their numbers say."""

import base64
import io

import numpy as np
from PIL import Image, ImageColor

from assets.core import plotting
from assets.core.metadata import image_metadata, table_metadata
from assets.curation import figures

SCORES = [
    {"iteration": i, "attempts": 100 - 20 * i, "mean": 6 + i / 2}
    | {"lower_quartile": 4 + i / 2, "median": 6.5 + i / 2, "upper_quartile": 8 + i / 2}
    for i in range(4)
]
COUNTS = {"accepted_before": 70, "rejected_before": 30, "accepted_after": 30, "rejected_after": 30}
BALANCE = [{"iteration": i, **COUNTS} for i in range(3)]
CHARTS = {
    "status": lambda: plotting.status_counts({"complete": 90, "quarantined": 2}),
    "kept": lambda: figures.filter_counts(40, {"negative_trend": 3}),
    "variance": lambda: figures.variance_histogram([0, 1, 2, 3], [50, 20, 10], 1.5),
    "balance": lambda: figures.balance_by_iteration(BALANCE),
    "scores": lambda: figures.score_by_iteration(SCORES),
}


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def columns_of(png: bytes, colour: str) -> np.ndarray:
    """Pixel columns of a plot's bars of a colour; a legend's patch is too small to count."""
    close = np.abs(pixels(png) - ImageColor.getrgb(colour)).max(axis=2) < 12
    return np.flatnonzero(close.sum(axis=0) > 40)


def test_charts_are_small_and_reproducible_pngs():
    for name, chart in CHARTS.items():
        png = chart()
        image = Image.open(io.BytesIO(png))
        assert image.format == "PNG" and 600 <= image.width <= 1400, name
        assert len(png) < 80_000, name
        assert png == chart(), name


def test_the_histogram_has_sft_below_and_rl_above_theta():
    png = figures.variance_histogram([0, 1, 2, 3], [50, 40, 30], 1.5)
    sft, rl = columns_of(png, figures.SFT), columns_of(png, figures.RL)
    assert sft.max() <= rl.min() + 2  # the dashed line lies between
    assert abs(len(sft) - len(rl)) < 20  # θ is in the middle of the values


def test_a_histogram_without_theta_has_no_sides():
    png = figures.variance_histogram([0, 1, 2], [5, 4], None)
    assert not len(columns_of(png, figures.SFT)) and not len(columns_of(png, figures.RL))
    assert len(columns_of(png, plotting.OTHER))


def test_longer_bars_stand_for_more():
    def length(complete: int) -> int:
        png = plotting.status_counts({"complete": complete, "exhausted": 100})
        close = np.abs(pixels(png) - ImageColor.getrgb(plotting.GOOD)).max(axis=2) < 12
        return int(close.sum())

    assert length(20) < length(60) < length(100)


def test_a_chart_without_values_is_an_image():
    charts = [
        plotting.status_counts({}),
        figures.filter_counts(0, {}),
        figures.balance_by_iteration([]),
        figures.score_by_iteration([]),
    ]
    assert all(Image.open(io.BytesIO(png)).width > 0 for png in charts)


def test_markdown_embeds_the_image_and_its_alt_text():
    png = CHARTS["status"]()
    text = image_metadata(png, "status [of]\nall").value
    assert text.startswith("![status (of) all](data:image/png;base64,")
    assert base64.b64decode(text.split("base64,")[1].removesuffix(")")) == png


def test_rows_with_other_columns_are_shown():
    """Such as what breaks references to two tables."""
    rows = [{"pack": "a", "subcategory": "x|y"}, {"pack": "a", "template_id": "t"}]
    lines = table_metadata(rows).value.splitlines()
    assert lines[0] == "| pack | subcategory | template_id |"
    assert lines[2:] == ["| a | x\\|y |  |", "| a |  | t |"]
