"""Worker processes report their progress to the process that started them."""

from dataclasses import dataclass, field

from dagster_project.workers import RelayedProgress, worker_processes


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
