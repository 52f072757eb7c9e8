"""What Dagster shows of a batch: counts of statuses, and a contact sheet of some trajectories."""

from collections import Counter
from typing import Any

from inference.generation.trajectory_view import TrajectoryView
from schemas.generations import GenerationRow
from warehouse import ImageStore

from ..core import figures
from ..core.metadata import image_metadata
from ..core.plotting import small_png
from ..trajectories.contact_sheet import contact_sheet
from ..trajectories.trajectory_views import step_views
from .batch_runner import BatchResults

_SHEET_ROWS = 6


def batch_metadata(images: ImageStore, results: BatchResults) -> dict[str, Any]:
    """A chart of statuses and a contact sheet.

    Raises:
        BadImageError: an image is missing or damaged.
    """
    statuses: Counter[str] = Counter(request.status for request in results.requests)
    chart = figures.status_counts(statuses, "requests")
    best = sorted(results.requests, key=_sheet_order)[:_SHEET_ROWS]
    views = [_trajectory_view(images, results, request) for request in best]
    sheet = small_png(contact_sheet(views, image_size=128), colours=255)
    return {
        "statuses": image_metadata(chart, "Requests by status"),
        "stories": image_metadata(sheet, "Some generations of this batch"),
    }


def _sheet_order(request: GenerationRow) -> tuple[bool, ...]:
    """Complete ones with images first, those with rejected attempts before the others."""
    no_rejections = request.attempts == len(request.images)
    return request.status != "complete", not request.images, no_rejections


def _trajectory_view(
    images: ImageStore, results: BatchResults, request: GenerationRow
) -> TrajectoryView:
    steps = results.steps(request)
    return TrajectoryView(
        trajectory_id=request.trajectory_id,
        request=request.text,
        category=request.request_key or "request",
        subcategory=request.status,
        status=request.status,
        reasoning=steps[0].reasoning if steps else "",
        input_images=(),
        steps=step_views(images, steps, results.attempts(request), {}),
    )
