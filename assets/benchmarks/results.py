"""Benchmark runs with their numbers: metrics of items, and the official ones with intervals."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
import orjson
from pydantic import JsonValue

from schemas import FoundryError, Table
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

from ..core.statistics import Interval, mean_interval
from .benchmark import Benchmark, ItemMetrics
from .settings import BenchmarksSettings

_STEP_METRIC = "step-"  # with a number: quality of one step of an answer
_KNOWN_SHARE = 0.9  # of resamples, which may by chance have no item with a number


def stored_rows(home: Home, table: Table, partitions: Sequence[str]) -> list[Any]:
    """Rows of some partitions of a table, as its row models."""
    records = home.lake.read(table, partitions).to_pylist() if partitions else []
    return [table.row.model_validate(record) for record in records]


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

    def write(self, home: Home) -> None:
        """Write the numbers that follow from answers and judgements."""
        home.lake.write(BENCHMARK_RESULTS, self.results, self.name)
        home.lake.write(BENCHMARK_SCORES, self.scores, self.name)

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
        names = dict.fromkeys(row.metric for row in self.scores)
        own = (name for name in names if not name.startswith(_STEP_METRIC))
        return sorted(own, key=lambda name: name != headline)

    def values(self, metric: str) -> dict[str, float]:
        """Item -> value of a metric, of the items that have it."""
        rows = (row for row in self.scores if row.metric == metric)
        return {row.item_id: row.value for row in rows if row.value is not None}

    def groups(self, metric: str) -> dict[str, float]:
        """Group -> mean of a metric over its items that have it."""
        found: dict[str, list[float]] = defaultdict(list)
        for row in self.scores:
            if row.metric == metric and row.value is not None:
                found[row.group].append(row.value)
        return {group: fmean(values) for group, values in sorted(found.items())}

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

    def by_step(self) -> list[StepQuality]:
        """From the first step to the last of the longest answer."""
        qualities: dict[int, list[float]] = defaultdict(list)
        for row in self.scores:
            _, is_step, number = row.metric.partition(_STEP_METRIC)
            if is_step and row.value is not None:
                qualities[int(number)].append(row.value)
        longest = max((len(row.images) for row in self.answers), default=0)
        steps = range(1, max(longest, *qualities, 0) + 1)
        return [self._quality_of(number, qualities[number]) for number in steps]

    def _quality_of(self, number: int, qualities: Sequence[float]) -> StepQuality:
        reached = [row.images[number - 1] for row in self.answers if len(row.images) >= number]
        pictures = fmean(name is not None for name in reached) if reached else None
        quality = mean_interval(qualities) if qualities else None
        return StepQuality(number, len(reached), pictures, quality)


def run_names(home: Home) -> list[str]:
    return sorted(home.lake.partitions(BENCHMARK_RESULTS))


def evaluate_run(
    name: str,
    benchmark: Benchmark,
    system: str,
    judge: str,
    answers: list[BenchmarkAnswerRow],
    judgements: list[JudgementRow],
    settings: BenchmarksSettings,
) -> Run:
    """Metrics of every item and the official numbers; items that were not judged count nowhere."""
    values: dict[str, dict[str, JsonValue]] = defaultdict(dict)
    for row in judgements:
        values[row.item_id][row.call] = None if row.value is None else orjson.loads(row.value)
    judged = {row.item_id for row in answers} & values.keys()
    shared = {"benchmark": benchmark.name, "system": system, "judge": judge}
    items: list[ItemMetrics] = []
    scores: list[BenchmarkScoreRow] = []
    for item in benchmark.items:
        if item.item_id not in judged:
            continue
        own = values[item.item_id]
        metrics = benchmark.metrics(item, own)
        items.append(ItemMetrics(item.item_id, item.group, metrics))
        steps = benchmark.quality_by_step(item, own)  # no part of the official numbers
        by_step = {f"{_STEP_METRIC}{number}": quality for number, quality in steps.items()}
        scores += [
            BenchmarkScoreRow(
                **shared, item_id=item.item_id, group=item.group, metric=metric, value=value
            )
            for metric, value in {**metrics, **by_step}.items()
        ]
    intervals = bootstrap(benchmark, items, settings)
    unscored = sum(None in each.metrics.values() for each in items) / max(len(items), 1)
    results = [
        BenchmarkResultRow(
            **shared,
            metric=metric,
            headline=metric == benchmark.headline,
            value=value,
            low=intervals[metric][0],
            high=intervals[metric][1],
            confidence=settings.confidence,
            items=len(items),
            unscored=unscored,
            of_items=len(benchmark.items),
            evaluated_at=datetime.now(UTC),
        )
        for metric, value in benchmark.aggregate(items).items()
    ]
    return Run(name, results, scores, answers, judgements)


def number_cells(row: BenchmarkResultRow) -> tuple[str, str, str]:
    """A number for a table: its name, value and interval."""
    value = "missing" if row.value is None else f"{row.value:.3f}"
    return row.metric, value, "" if row.low is None else f"{row.low:.3f} to {row.high:.3f}"


def bootstrap(
    benchmark: Benchmark, items: Sequence[ItemMetrics], settings: BenchmarksSettings
) -> Mapping[str, tuple[float | None, float | None]]:
    """Percentile intervals of the official numbers, from items drawn anew within their groups.

    (None, None) where a number is missing: in the sample, or in more than a tenth of the resamples.
    """
    generator = np.random.default_rng(settings.seed)
    groups: dict[str, list[ItemMetrics]] = defaultdict(list)
    for item in items:
        groups[item.group].append(item)
    drawn: dict[str, list[float | None]] = defaultdict(list)
    for _ in range(settings.resamples):
        resample = [
            group[index]
            for group in groups.values()
            for index in generator.integers(len(group), size=len(group))
        ]
        for metric, value in benchmark.aggregate(resample).items():
            drawn[metric].append(value)
    tails = [(1 - settings.confidence) / 2, (1 + settings.confidence) / 2]
    intervals: dict[str, tuple[float | None, float | None]] = dict.fromkeys(drawn, (None, None))
    for metric, values in drawn.items():
        known = [value for value in values if value is not None]
        if known and len(known) >= _KNOWN_SHARE * len(values):
            low, high = np.quantile(known, tails)
            intervals[metric] = float(low), float(high)
    return intervals
