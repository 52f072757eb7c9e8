"""Checks of the generations of a batch."""

from schemas.generations import GENERATIONS
from schemas.trajectories import ATTEMPTS
from warehouse.lake import REQUESTS

from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from ..core.integrity import Violations, damaged_images, distinct_strings
from .assets import GENERATION_SET


def _images_intact(foundry: FoundryResource, batch: str | None) -> Violations:
    lake, images = foundry.home.lake, foundry.home.images
    batches = [batch] if batch else lake.partitions(GENERATIONS)
    attempts = lake.read(ATTEMPTS, [f"{REQUESTS}{name}" for name in batches], ["image"])
    requests = lake.read(GENERATIONS, batches, ["images", "input_images"])
    return damaged_images(images, {*distinct_strings(attempts), *distinct_strings(requests)})


def _attempts_complete(foundry: FoundryResource, batch: str | None) -> Violations:
    """Requests whose number of attempts in the lake differs from their column `attempts`."""
    lake, batches = foundry.home.lake, [batch] if batch else None
    columns = ["generation_id", "trajectory_id", "shard", "attempts"]
    requests = lake.read(GENERATIONS, batches, columns)
    partitions = sorted({f"{REQUESTS}{name}" for name in requests["shard"].to_pylist()})
    attempts = lake.read(ATTEMPTS, partitions, ["trajectory_id"])["trajectory_id"].to_pylist()
    return [
        row
        for row in requests.to_pylist()
        if attempts.count(row["trajectory_id"]) != row["attempts"]
    ]


generations_checks = blocking_checks(
    GENERATION_SET,
    pictures_intact=("Every image is in the store, as it was generated", _images_intact),
    attempts_there=("Every request's attempts are in the lake", _attempts_complete),
)
