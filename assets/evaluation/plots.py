"""Plots of an evaluation, and a sheet of its final images."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from inference.calls.hashing import stable_hash
from inference.generation.trajectory_view import AttemptView, StepView, TrajectoryView
from schemas.prompts import PromptRow
from warehouse import ImageStore

from ..core.plotting import ACCENT, BAD, GOOD, INK, OTHER, PALE, figure_png, new_figure, small_png
from ..core.statistics import Interval
from ..trajectories.contact_sheet import contact_sheet
from .metrics import SUCCESS, Summary
from .paper import TABLE_5
from .variants import VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# variant -> item -> sha256 of its final image
Finals = Mapping[str, Mapping[str, str]]
# variant -> item -> 1 where that image is right, else 0; items that were not graded are missing
Success = Mapping[str, Mapping[str, float]]

# Per panel: its title, and its metrics with their colours.
_PANELS = (
    ("Final picture right", (("final_success", OTHER),)),
    (
        "Verdict right, of good\nand of bad pictures",
        (("verdict_accuracy_true", GOOD), ("verdict_accuracy_false", BAD)),
    ),
    ("Step reward", (("step_reward", ACCENT),)),
)
_SUCCESS_CAPTIONS = {None: "not graded", 0.0: "not as asked for", 1.0: "as asked for"}


def interval_plot(summary: Summary, title: str) -> bytes:
    """Means with their intervals, a row per variant and a panel per group of metrics."""
    names = summary.variants
    with new_figure(1.9 + 0.34 * len(names), title, columns=len(_PANELS)) as (figure, panels):
        for axes, (heading, metrics) in zip(panels, _PANELS, strict=True):
            axes.set_title(heading, fontsize=10)
            for index, (metric, colour) in enumerate(metrics):
                shift = 0.14 * (2 * index - len(metrics) + 1)
                _dots(axes, [summary.mean(name, metric) for name in names], shift, colour)
            _label_rows(axes, names if axes is panels[0] else [""] * len(names))
        panels[0].set_xlim(-0.03, 1.03)
        panels[1].set_xlim(-0.03, 1.03)
        return figure_png(figure)


def beside_paper_plot(summary: Summary) -> bytes:
    """Final images that are right, here, and UEval's image score in table 5."""
    names = [name for name in VARIANTS if name in summary.variants]
    figures = new_figure(1.9 + 0.34 * len(names), "What each part contributes", columns=2)
    with figures as (figure, (ours, theirs)):
        ours.set_title("Final pictures right, here", fontsize=10)
        _dots(ours, [summary.mean(name, SUCCESS) for name in names], 0.0, OTHER)
        ours.set_xlim(-0.03, 1.03)
        theirs.set_title("UEval of pictures, paper's table 5", fontsize=10)
        published = [
            (TABLE_5[name].image, row) for row, name in enumerate(names) if name in TABLE_5
        ]
        theirs.plot(*zip(*published, strict=True), "o", color=PALE)
        theirs.set_xlim(0, 100)
        _label_rows(ours, names)
        _label_rows(theirs, [""] * len(names))
        return figure_png(figure)


def final_images_sheet(
    images: ImageStore,
    requests: Sequence[PromptRow],
    finals: Finals,
    success: Success,
    count: int = 6,
) -> bytes:
    """A row per request, an image per variant, captioned by whether it is right."""
    sampled = sorted(requests, key=lambda row: stable_hash("sheet", row.prompt_id))[:count]
    rows = [_request_view(images, request, finals, success) for request in sampled]
    sheet = contact_sheet(rows, image_size=112, columns=max(3, len(finals)), rejections=False)
    return small_png(sheet, colours=255)


def _request_view(
    images: ImageStore, request: PromptRow, finals: Finals, success: Success
) -> TrajectoryView:
    """Variants as steps: the final image of each, or a caption where there is none."""
    item = request.prompt_id
    steps = []
    for number, variant in enumerate(finals, 1):
        caption = "no picture"
        attempts: tuple[AttemptView, ...] = ()
        if sha256 := finals[variant].get(item):
            caption = _SUCCESS_CAPTIONS[success[variant].get(item)]
            attempts = (AttemptView(images.get(sha256), "", True, True, "", "", None),)
        steps.append(StepView(number, variant.replace("_", " "), caption, attempts))
    return TrajectoryView(
        item, request.text, tuple(steps), category=request.category, subcategory=request.subcategory
    )


def _dots(axes: "Axes", means: Sequence[Interval | None], shift: float, colour: str) -> None:
    for row, mean in enumerate(means):
        if mean is not None:
            bounds, height = [mean.low, mean.high], row + shift
            axes.plot(bounds, [height] * 2, color=colour, linewidth=2, alpha=0.5)
            axes.plot(mean.mean, height, "o", color=colour, markersize=5)


def _label_rows(axes: "Axes", names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, colors=INK)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
