"""The assets of benchmarks: answers, judgements and results, each in partitions of its own."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from inference.generation.files import file_version
from schemas.benchmarks import (
    BENCHMARK_ANSWERS,
    BENCHMARK_RESULTS,
    BENCHMARK_SCORES,
    JUDGEMENTS,
    BenchmarkAnswerRow,
    BenchmarkResultRow,
)
from schemas.trajectories import MODEL_CALLS, QUARANTINE

from ..core.checks import Violations, blocking_checks, damaged_images
from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, model_call_costs, table_metadata
from ..core.node import Node, Partitions
from ..core.plotting import ACCENT, OTHER, figure_png, label_rows, new_figure, plot_mean
from ..core.progress import progress_of
from .answering import answer_items, import_answers
from .judging import load_answer
from .report import write_report
from .results import number_cells
from .runs import BenchmarkRun, BenchmarkRuns, Kind, origin_of

_SHOWN = 20


def _answers_origin(foundry: FoundryResource, partition: str) -> object:
    run, shard = BenchmarkRuns.of(foundry).find("answers", partition)
    imported = run.imported and [str(run.imported), file_version(str(run.imported))]
    return [origin_of(shard.items), imported]


def _judgements_origin(foundry: FoundryResource, partition: str) -> object:
    run, shard = BenchmarkRuns.of(foundry).find("judgements", partition)
    return [run.judge, foundry.home.lake.content_hash(BENCHMARK_ANSWERS, shard.answers)]


def _results_origin(foundry: FoundryResource, partition: str) -> object:
    run, _ = BenchmarkRuns.of(foundry).find("results", partition)
    lake = foundry.home.lake
    return [lake.content_hash(JUDGEMENTS, shard.judgements) for shard in run.shards]


def _partitions(
    name: str, kind: Kind, origin: Callable[[FoundryResource, str], object]
) -> Partitions:
    definition = dg.DynamicPartitionsDefinition(name=name)
    return Partitions(
        definition, lambda foundry: BenchmarkRuns.of(foundry).partitions(kind), origin
    )


ANSWERS = Node(
    name="benchmark_answers",
    group="benchmarks",
    description="What the promoted agents, and other systems, answer to the items of benchmarks.",
    tables=(BENCHMARK_ANSWERS,),
    ledger=(QUARANTINE,),
    deps=("promotion",),
    sections=("benchmarks.seed", "loop"),
    partitions=_partitions("benchmark_shards", "answers", _answers_origin),
    pool="generator",
    optional=True,
)
JUDGEMENT_SET = Node(
    name="benchmark_judgements",
    group="benchmarks",
    description="What a judge says about the answers, question by question.",
    tables=(JUDGEMENTS,),
    ledger=(MODEL_CALLS,),
    deps=("benchmark_answers",),
    sections=("benchmarks.tries",),
    partitions=_partitions("benchmark_judgings", "judgements", _judgements_origin),
    pool="agents",
    optional=True,
)
RESULTS = Node(
    name="benchmark_results",
    group="benchmarks",
    description="The official numbers of every run with their intervals, and metrics by item.",
    tables=(BENCHMARK_RESULTS, BENCHMARK_SCORES),
    deps=("benchmark_judgements",),
    sections=("benchmarks.resamples", "benchmarks.confidence", "benchmarks.seed"),
    partitions=_partitions("benchmark_runs", "results", _results_origin),
    optional=True,
)


@dg.asset(**ANSWERS.asset_args())
def benchmark_answers(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    runs = BenchmarkRuns.of(foundry)
    run, shard = runs.find("answers", context.partition_key)
    if run.imported:
        answers = import_answers(foundry.home, shard, run.imported)
    else:
        profile, progress = foundry.settings, progress_of(context)
        answers = asyncio.run(answer_items(foundry.home, profile, shard, runs.settings, progress))
    statuses = Counter(row.status for row in answers.rows)
    counts = [{"status": status, "items": count} for status, count in sorted(statuses.items())]
    metadata = {
        "statuses": table_metadata(counts),
        "quarantine": table_metadata([row.model_dump() for row in answers.quarantine[:_SHOWN]]),
        **model_call_costs(answers.calls),
    }
    tables = {BENCHMARK_ANSWERS: answers.rows, QUARANTINE: answers.quarantine}
    return ANSWERS.record(context, foundry, tables, metadata)


@dg.asset(**JUDGEMENT_SET.asset_args())
def benchmark_judgements(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    runs = BenchmarkRuns.of(foundry)
    run, shard = runs.find("judgements", context.partition_key)
    answers = foundry.rows(BENCHMARK_ANSWERS, shard.answers)
    rows, calls = asyncio.run(runs.judge(shard, answers, progress_of(context)))
    unread = [row.model_dump() for row in rows if row.value is None]
    metadata = {
        "judge": run.judge,
        "unreadable": len(unread),
        "unreadable_answers": table_metadata(unread[:_SHOWN]),
        **model_call_costs(calls),
    }
    tables: dict[Any, Any] = {JUDGEMENTS: rows, MODEL_CALLS: calls}
    return JUDGEMENT_SET.record(context, foundry, tables, metadata)


@dg.asset(**RESULTS.asset_args())
def benchmark_results(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    runs = BenchmarkRuns.of(foundry)
    run, _ = runs.find("results", context.partition_key)
    found = runs.evaluate(run)
    page = foundry.home.exports / "benchmarks" / f"{run.name}.html"
    write_report(foundry.home, [found], page)
    metadata = {
        "official_layout": dg.MetadataValue.path(str(_export(foundry, run, found.answers))),
        "report": dg.MetadataValue.path(str(page)),
        "numbers": table_metadata([_number(row) for row in found.results]),
        "plot": image_metadata(_results_plot(found.results), f"Results of {run.name}"),
    }
    tables = {BENCHMARK_RESULTS: found.results, BENCHMARK_SCORES: found.scores}
    return RESULTS.record(context, foundry, tables, metadata)


def _export(foundry: FoundryResource, run: BenchmarkRun, answers: list[BenchmarkAnswerRow]) -> Path:
    """The system's own answers as the official scorer reads them; imported ones are so already."""
    if run.imported:
        return run.imported
    contents = ((row.item_id, load_answer(foundry.home.images, row)) for row in answers)
    folder = foundry.home.exports / "benchmarks" / run.benchmark.name
    return run.benchmark.write_answers(folder, run.system, contents)


def _number(row: BenchmarkResultRow) -> dict[str, object]:
    metric, value, interval = number_cells(row)
    return {
        "number": metric,
        "value": value,
        f"{row.confidence:.0%} interval": interval,
        "items": f"{row.items} of {row.of_items}",
        "unscored": f"{row.unscored:.1%}",
    }


def _results_plot(rows: Sequence[BenchmarkResultRow]) -> bytes:
    """The numbers of a run with their intervals; missing ones are left out."""
    known = [row for row in rows if row.value is not None]
    title = f"{rows[0].benchmark}: {rows[0].system}" if rows else ""
    with new_figure(1.6 + 0.3 * len(known), title) as (figure, axes):
        for height, row in enumerate(known):
            colour = ACCENT if row.headline else OTHER
            plot_mean(axes, height, colour, row.value or 0.0, row.low, row.high)
        label_rows(axes, [row.metric for row in known])
        return figure_png(figure)


def _images_intact(foundry: FoundryResource, partition: str | None) -> Violations:
    partitions = [partition] if partition else None
    rows = foundry.home.lake.read(
        BENCHMARK_ANSWERS, partitions, ["images", "input_images"]
    ).to_pylist()
    names = {name for row in rows for name in (*row["images"], *row["input_images"]) if name}
    return damaged_images(foundry.home.images, names)


def _answers_judged(foundry: FoundryResource, partition: str | None) -> Violations:
    """Items of the shard with an answer, and no judgement at all."""
    if partition is None:
        return []
    _, shard = BenchmarkRuns.of(foundry).find("judgements", partition)
    lake = foundry.home.lake
    answered = lake.read(BENCHMARK_ANSWERS, [shard.answers], ["item_id"])["item_id"].to_pylist()
    judged = lake.read(JUDGEMENTS, [partition], ["item_id"])["item_id"].to_pylist()
    return [{"item_id": item} for item in answered if item not in set(judged)]


benchmark_answers_checks = blocking_checks(
    ANSWERS, images_intact=("Every image is in the store, as it was generated", _images_intact)
)
benchmark_judgements_checks = blocking_checks(
    JUDGEMENT_SET, answers_judged=("Every answer was judged", _answers_judged)
)
benchmark_results_checks = blocking_checks(RESULTS)
