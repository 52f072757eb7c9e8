"""Metrics of items, and the official numbers with their intervals, from a judge's answers."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson
from pydantic import JsonValue

from schemas import Table
from schemas.benchmarks import (
    BenchmarkAnswerRow,
    BenchmarkResultRow,
    BenchmarkScoreRow,
    JudgementRow,
)
from warehouse import Home

from .benchmark import Benchmark, Item, ItemMetrics, Values
from .settings import BenchmarksSettings

STEP_METRIC = "step-"  # with a number: quality of one step of an answer
_KNOWN_SHARE = 0.9  # of resamples, which may by chance have no item with a number


def stored_rows(home: Home, table: Table, partitions: Sequence[str]) -> list[Any]:
    """Rows of some partitions of a table, as its row models."""
    records = home.lake.read(table, partitions).to_pylist() if partitions else []
    return [table.row.model_validate(record) for record in records]


@dataclass(frozen=True)
class RunResult:
    """The numbers of a run: one system's answers to a benchmark, judged by one judge."""

    scores: list[BenchmarkScoreRow]
    results: list[BenchmarkResultRow]


def evaluate_run(
    benchmark: Benchmark,
    system: str,
    judge: str,
    answers: Sequence[BenchmarkAnswerRow],
    judgements: Sequence[JudgementRow],
    settings: BenchmarksSettings,
) -> RunResult:
    """Metrics of every item and the official numbers; items that were not judged count nowhere."""
    values = _values_by_item(judgements)
    answered = {row.item_id for row in answers} & values.keys()
    judged = [item for item in benchmark.items if item.item_id in answered]
    items = [
        ItemMetrics(item.item_id, item.group, benchmark.metrics(item, values[item.item_id]))
        for item in judged
    ]
    shared = {"benchmark": benchmark.name, "system": system, "judge": judge}
    scores = [
        BenchmarkScoreRow(
            **shared, item_id=each.item_id, group=each.group, metric=metric, value=value
        )
        for each in [*items, *_step_metrics(benchmark, judged, values)]
        for metric, value in each.metrics.items()
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
    return RunResult(scores, results)


def number_cells(row: BenchmarkResultRow) -> tuple[str, str, str]:
    """A number for a table: its name, value and interval."""
    value = "missing" if row.value is None else f"{row.value:.3f}"
    return row.metric, value, "" if row.low is None else f"{row.low:.3f} to {row.high:.3f}"


def bootstrap(
    benchmark: Benchmark, items: Sequence[ItemMetrics], settings: BenchmarksSettings
) -> dict[str, tuple[float | None, float | None]]:
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
    return {metric: _quantiles(values, tails) for metric, values in drawn.items()}


def _quantiles(
    values: Sequence[float | None], tails: Sequence[float]
) -> tuple[float | None, float | None]:
    known = [value for value in values if value is not None]
    if not known or len(known) < _KNOWN_SHARE * len(values):
        return None, None
    low, high = np.quantile(known, tails)
    return float(low), float(high)


def _values_by_item(judgements: Sequence[JudgementRow]) -> dict[str, dict[str, JsonValue]]:
    values: dict[str, dict[str, JsonValue]] = defaultdict(dict)
    for row in judgements:
        values[row.item_id][row.call] = None if row.value is None else orjson.loads(row.value)
    return values


def _step_metrics(
    benchmark: Benchmark, items: Sequence[Item], values: Mapping[str, Values]
) -> Iterator[ItemMetrics]:
    """No part of the official numbers: how good single steps are."""
    for item in items:
        steps = benchmark.quality_by_step(item, values[item.item_id])
        metrics = {f"{STEP_METRIC}{number}": quality for number, quality in steps.items()}
        yield ItemMetrics(item.item_id, item.group, metrics)
