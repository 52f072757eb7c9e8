"""What must hold of a shard's plans, trajectories and scores before they are used."""

from schemas.trajectories import ATTEMPTS

from ..core import integrity
from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from .assets import PLAN_SET, SCORE_SET, TRAJECTORY_SET


def _images_intact(foundry: FoundryResource, shard: str | None) -> integrity.Violations:
    partitions = None if shard is None else [shard]
    data = foundry.home.lake.read(ATTEMPTS, partitions, columns=["image", "source_image"])
    return integrity.damaged_images(foundry.home.images, integrity.distinct_strings(data))


plans_checks = blocking_checks(PLAN_SET)
trajectories_checks = blocking_checks(
    TRAJECTORY_SET,
    images_intact=("Every image is in the store and hashes to its name", _images_intact),
)
scores_checks = blocking_checks(SCORE_SET)
