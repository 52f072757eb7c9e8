"""Progress over shards has a forecast once enough of them are finished in this run."""

from datetime import UTC, datetime, timedelta

from assets.core.foundry import FoundryResource
from assets.core.node import NODES
from assets.core.progress import reporting_to
from dagster_project import definitions  # noqa: F401, declares nodes
from dagster_project.stage_runner import ShardProgress
from schemas.trajectories import MODEL_CALLS
from tests.helpers.ledger import model_call

SHARDS = [f"a-{n:04}" for n in range(10)]


class Recorded:
    def __init__(self):
        self.notes = {}

    def update(self, done, total, note=""):
        self.notes[done] = note


def finish(home, count, **changes):
    """Notes by number of finished shards, each of one call made now."""
    recorded, nodes = Recorded(), [NODES["trajectories"]]
    with reporting_to(lambda label: recorded):
        progress = ShardProgress(FoundryResource(root=home.root), nodes, len(SHARDS))
    for number, shard in enumerate(SHARDS[:count]):
        paid = {"cost_usd": 1 + 0.1 * (number % 2), "started_at": datetime.now(UTC)} | changes
        home.lake.write(MODEL_CALLS, [model_call(number, **paid)], f"trajectories-{shard}")
        progress.finish(shard)
    return recorded.notes


def test_it_begins_with_the_fifth_shard_and_ends_with_the_last(home):
    notes = finish(home, 10)
    assert not any(notes[done] for done in (1, 2, 3, 4, 10))
    assert notes[5].startswith("ends ") and notes[5].endswith(" USD more")
    low, high = notes[5].split(", ")[1].removesuffix(" USD more").split(" to ")
    assert float(low) < 5 * 1.04 < float(high)


def test_without_prices_or_with_calls_of_an_earlier_run(home):
    note = finish(home, 5, cost_usd=None)[5]
    assert note.startswith("ends") and "USD" not in note
    assert finish(home, 5, started_at=datetime.now(UTC) - timedelta(days=1))[5] == ""
