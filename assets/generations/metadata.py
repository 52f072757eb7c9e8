"""What Dagster shows of a batch: how its stories ended, and some of them as a contact sheet."""

from collections import Counter
from typing import Any

from schemas.generations import GenerationRow
from warehouse import ImageStore

from ..core import figures
from ..trajectories.contact_sheet import contact_sheet
from ..core.metadata import image_metadata
from ..core.plotting import small_png
from ..trajectories.trajectory_views import TrajectoryView, step_views
from .batch_results import BatchResults

_SHOWN = 6


def pictures_of(images: ImageStore, answers: BatchResults) -> dict[str, Any]:
    """Metadata: statuses counted, and a few stories.

    Raises:
        BadImageError: a picture is missing or damaged.
    """
    statuses: Counter[str] = Counter(request.status for request in answers.requests)
    best = sorted(answers.requests, key=_worth_showing)[:_SHOWN]
    stories = [_story(images, answers, request) for request in best]
    sheet = small_png(contact_sheet(stories, image_size=128), colours=255)
    return {
        "statuses": image_metadata(figures.status_counts(statuses, "requests"), "Requests by status"),
        "stories": image_metadata(sheet, "Some stories of this batch"),
    }


def _worth_showing(request: GenerationRow) -> tuple[bool, ...]:
    """Complete stories with pictures first, those with refused attempts before the others."""
    smooth = request.attempts == len(request.images)
    return request.status != "complete", not request.images, smooth


def _story(images: ImageStore, answers: BatchResults, request: GenerationRow) -> TrajectoryView:
    steps = answers.steps(request)
    return TrajectoryView(
        trajectory_id=request.trajectory_id,
        request=request.text,
        category=request.request_key or "request",
        subcategory=request.status,
        status=request.status,
        reasoning=steps[0].reasoning if steps else "",
        input_images=(),
        steps=step_views(images, steps, answers.attempts(request), {}),
    )
