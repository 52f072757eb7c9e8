"""What must hold of the stories of a batch."""

from schemas.generations import GENERATIONS
from schemas.trajectories import ATTEMPTS
from warehouse.lake import REQUESTS

from ..core import integrity
from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from .assets import GENERATION_SET


def _pictures_intact(foundry: FoundryResource, batch: str | None) -> integrity.Broken:
    home, batches = foundry.home, [batch] if batch else foundry.home.lake.partitions(GENERATIONS)
    drawn = home.lake.read(ATTEMPTS, [f"{REQUESTS}{name}" for name in batches], ["image"])
    asked = home.lake.read(GENERATIONS, batches, ["images", "input_images"])
    names = {*integrity.names_in(drawn), *integrity.names_in(asked)}
    return integrity.damaged_images(home.images, names)


def _attempts_there(foundry: FoundryResource, batch: str | None) -> integrity.Broken:
    """Requests whose attempts are not those that they count."""
    lake, batches = foundry.home.lake, [batch] if batch else None
    asked = lake.read(GENERATIONS, batches, ["generation_id", "trajectory_id", "shard", "attempts"])
    names = sorted({f"{REQUESTS}{name}" for name in asked["shard"].to_pylist()})
    drawn = lake.read(ATTEMPTS, names, ["trajectory_id"])["trajectory_id"].to_pylist()
    return [
        row for row in asked.to_pylist() if drawn.count(row["trajectory_id"]) != row["attempts"]
    ]


generations_checks = blocking_checks(
    GENERATION_SET,
    {
        "pictures_intact": ("Every picture is in the store, as it was drawn", _pictures_intact),
        "attempts_there": ("Every request's attempts are in the lake", _attempts_there),
    },
)
