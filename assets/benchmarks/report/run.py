"""A benchmark run as its tables have it, and two runs compared item by item."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from schemas import FoundryError
from schemas.benchmarks import (
    BENCHMARK_ANSWERS,
    BENCHMARK_RESULTS,
    BENCHMARK_SCORES,
    JUDGEMENTS,
    BenchmarkAnswerRow,
    BenchmarkResultRow,
    BenchmarkScoreRow,
    JudgementRow,
)
from warehouse import Home

from ...core.statistics import Interval, mean_interval
from ..results import STEP_METRIC, stored_rows


@dataclass(frozen=True)
class Run:
    """One system's answers to a benchmark, judged by one judge."""

    name: str
    results: list[BenchmarkResultRow]
    scores: list[BenchmarkScoreRow]
    answers: list[BenchmarkAnswerRow]
    judgements: list[JudgementRow]

    @classmethod
    def read(cls, home: Home, name: str) -> "Run":
        """Raises FoundryError: the home has no such run."""
        if name not in home.lake.partitions(BENCHMARK_RESULTS):
            known = ", ".join(run_names(home)) or "none; make one with `interleave evaluate`"
            raise FoundryError(f"no benchmark run {name} in {home.root}; there are: {known}")
        judged = [each for each in home.lake.partitions(JUDGEMENTS) if each.startswith(f"{name}.")]
        judgements = stored_rows(home, JUDGEMENTS, judged)
        answered = sorted({row.shard for row in judgements})
        return cls(
            name,
            stored_rows(home, BENCHMARK_RESULTS, [name]),
            stored_rows(home, BENCHMARK_SCORES, [name]),
            stored_rows(home, BENCHMARK_ANSWERS, answered),
            judgements,
        )

    @property
    def benchmark(self) -> str:
        return self.results[0].benchmark

    @property
    def system(self) -> str:
        return self.results[0].system

    @property
    def judge(self) -> str:
        return self.results[0].judge

    @cached_property
    def metrics(self) -> list[str]:
        """Metrics of items, that of the headline's name first."""
        headline = next((row.metric for row in self.results if row.headline), "")
        names = dict.fromkeys(row.metric for row in self.scores if not _step(row))
        return sorted(names, key=lambda name: name != headline)

    def values(self, metric: str) -> dict[str, float]:
        """Item -> value of a metric, of the items that have it."""
        return {
            row.item_id: row.value
            for row in self.scores
            if row.metric == metric and row.value is not None
        }

    @cached_property
    def groups(self) -> dict[str, dict[str, float]]:
        """Group -> metric -> mean over its items that have it."""
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in self.scores:
            if row.value is not None and not _step(row):
                found[row.group][row.metric].append(row.value)
        return {
            group: {metric: fmean(values) for metric, values in metrics.items()}
            for group, metrics in sorted(found.items())
        }

    @cached_property
    def words(self) -> dict[str, list[JudgementRow]]:
        """Item -> what the judge said about it."""
        found: dict[str, list[JudgementRow]] = defaultdict(list)
        for row in self.judgements:
            found[row.item_id].append(row)
        return found

    @property
    def labels(self) -> dict[tuple[str, str], str | None]:
        """(item, question) -> what the judge said, as JSON; None: it could not be read."""
        return {(row.item_id, row.call): row.value for row in self.judgements}

    def by_step(self) -> list["StepQuality"]:
        """From the first step to the last of the longest answer."""
        qualities: dict[int, list[float]] = defaultdict(list)
        for row in self.scores:
            if (number := _step(row)) and row.value is not None:
                qualities[number].append(row.value)
        longest = max((len(row.images) for row in self.answers), default=0)
        steps = range(1, max(longest, *qualities, 0) + 1)
        return [self._quality_of(number, qualities[number]) for number in steps]

    def _quality_of(self, number: int, qualities: Sequence[float]) -> "StepQuality":
        reached = [row for row in self.answers if len(row.images) >= number]
        drawn = [row for row in reached if row.images[number - 1] is not None]
        pictures = len(drawn) / len(reached) if reached else None
        quality = mean_interval(qualities) if qualities else None
        return StepQuality(number, len(reached), pictures, quality)


@dataclass(frozen=True)
class StepQuality:
    """How good the answers are at one step: whether they drift.

    Args:
        reached: answers that have this step.
        pictures: share of those that have a picture there; None: no answer has it.
        quality: mean with a bootstrap interval over the items whose judge says something about
            it, also where the answer lacks the step; None: steps are not judged.
    """

    number: int
    reached: int
    pictures: float | None
    quality: Interval | None


@dataclass(frozen=True)
class Difference:
    """A metric of two runs over the items that both have; the second minus the first."""

    metric: str
    gap: Interval
    wins: int
    ties: int
    losses: int


def compare_runs(first: Run, second: Run) -> list[Difference]:
    """Paired differences with bootstrap intervals over items; metrics that one lacks are left out.

    Raises:
        FoundryError: the runs are of different benchmarks.
    """
    if first.benchmark != second.benchmark:
        raise FoundryError(f"{first.name} and {second.name} are of different benchmarks")
    differences = (_difference(first, second, metric) for metric in first.metrics)
    return [each for each in differences if each]


def item_differences(first: Run, second: Run, metric: str) -> dict[str, float]:
    """Items that both have with the second's value minus the first's."""
    before, after = first.values(metric), second.values(metric)
    return {item: after[item] - before[item] for item in before if item in after}


def run_names(home: Home) -> list[str]:
    return sorted(home.lake.partitions(BENCHMARK_RESULTS))


def _difference(first: Run, second: Run, metric: str) -> Difference | None:
    gaps = list(item_differences(first, second, metric).values())
    if not gaps:
        return None
    wins, losses = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    ties = len(gaps) - wins - losses
    return Difference(metric, mean_interval(gaps), wins, ties, losses)


def _step(row: BenchmarkScoreRow) -> int | None:
    """Number of the step that a metric is about; None: about the answer."""
    _, found, number = row.metric.partition(STEP_METRIC)
    return int(number) if found else None
