"""Progress of workers arrives in the process that started them; over shards it has a forecast once
enough of them are finished in this run."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from assets.core.foundry import FoundryResource
from assets.core.node import NODES
from assets.core.progress import reporting_to
from dagster_project.stage_runner import ShardProgress
from dagster_project.workers import RelayedProgress, worker_processes
from schemas.trajectories import MODEL_CALLS
from tests.helpers.ledger import model_call

SHARDS = [f"a-{n:04}" for n in range(10)]


@dataclass
class Bar:
    label: str
    updates: list[tuple[int, int, str]] = field(default_factory=list)

    def update(self, done, total, note=""):
        self.updates.append((done, total, note))


def work(label):
    progress = RelayedProgress(label)
    for done in range(3):
        progress.update(done + 1, 3, f"{label} {done}")


def test_progress_of_workers_arrives_under_its_label():
    bars = []

    def bar(label):
        bars.append(Bar(label))
        return bars[-1]

    with worker_processes(2, bar) as pool:
        list(pool.map(work, ["planner", "critic"]))
    heard = {bar.label: bar.updates for bar in bars}
    assert len(bars) == 2
    assert heard == {
        label: [(1, 3, f"{label} 0"), (2, 3, f"{label} 1"), (3, 3, f"{label} 2")]
        for label in ("planner", "critic")
    }


def finish(home, count, **changes):
    """Notes by number of finished shards, each of one call made now."""
    recorded, nodes = Bar("shards"), [NODES["trajectories"]]
    with reporting_to(lambda label: recorded):
        progress = ShardProgress(FoundryResource(root=home.root), nodes, len(SHARDS))
    for number, shard in enumerate(SHARDS[:count]):
        paid = {"cost_usd": 1 + 0.1 * (number % 2), "started_at": datetime.now(UTC)} | changes
        home.lake.write(MODEL_CALLS, [model_call(number, **paid)], f"trajectories-{shard}")
        progress.finish(shard)
    return {done: note for done, _, note in recorded.updates}


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
