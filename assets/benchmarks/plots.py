"""Plots of benchmark runs, and a sheet of answers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from inference.generation.trajectory_view import AttemptView, StepView, TrajectoryView
from inference.roles import PlanStep
from schemas.benchmarks import BenchmarkAnswerRow, BenchmarkResultRow, BenchmarkScoreRow
from warehouse import ImageStore

from ..core.plotting import ACCENT, INK, OTHER, figure_png, new_figure, small_png
from ..trajectories.contact_sheet import contact_sheet
from .results import STEP_METRIC

_SHEET_ROWS = 6


def results_plot(rows: Sequence[BenchmarkResultRow]) -> bytes:
    """The numbers of a run with their intervals; missing ones are left out."""
    known = [row for row in rows if row.value is not None]
    title = f"{rows[0].benchmark}: {rows[0].system}" if rows else ""
    with new_figure(1.6 + 0.3 * len(known), title) as (figure, axes):
        for height, row in enumerate(known):
            colour = ACCENT if row.headline else OTHER
            if row.low is not None and row.high is not None:
                axes.plot([row.low, row.high], [height] * 2, color=colour, linewidth=2, alpha=0.5)
            axes.plot(row.value, height, "o", color=colour, markersize=5)
        axes.set_yticks(range(len(known)), [row.metric for row in known])
        axes.set_ylim(len(known) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0, colors=INK)
        axes.grid(axis="x")
        return figure_png(figure)


def answers_sheet(
    images: ImageStore, answers: Sequence[BenchmarkAnswerRow], scores: Sequence[BenchmarkScoreRow]
) -> bytes:
    """Some answers, half of them those with the lowest metrics, half with the highest."""
    means = _item_means(scores)
    scored = [row for row in answers if row.item_id in means]
    ranked = sorted(scored, key=lambda row: means[row.item_id])
    half = _SHEET_ROWS // 2
    shown = ranked if len(ranked) <= _SHEET_ROWS else [*ranked[:half], *ranked[-half:]]
    views = [_view(images, row, means[row.item_id]) for row in shown]
    return small_png(contact_sheet(views, image_size=112, rejections=False), colours=255)


def _item_means(scores: Sequence[BenchmarkScoreRow]) -> Mapping[str, float]:
    """Item -> mean of its metrics; items with an unscored one are left out."""
    values: dict[str, list[float | None]] = defaultdict(list)
    for row in scores:
        if not row.metric.startswith(STEP_METRIC):
            values[row.item_id].append(row.value)
    return {
        item: fmean(value for value in own if value is not None)
        for item, own in values.items()
        if None not in own
    }


def _view(images: ImageStore, row: BenchmarkAnswerRow, mean: float) -> TrajectoryView:
    steps = []
    for number, (text, sha256) in enumerate(zip(row.texts, row.images, strict=True), 1):
        step = PlanStep(number, auxiliary_text=text or "no text")
        attempts = [AttemptView(images.get(sha256), chosen=True)] if sha256 else []
        steps.append(StepView(step, attempts))
    return TrajectoryView(row.request, steps=steps, category=row.group, subcategory=f"{mean:.2f}")
