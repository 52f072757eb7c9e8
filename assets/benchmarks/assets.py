"""The assets of benchmarks: answers, judgements and results, each in partitions of its own."""

import asyncio
from collections import Counter
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
from warehouse.lake import REQUESTS

from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, model_call_costs, table_metadata
from ..core.node import Node, Partitions
from ..core.progress import progress_of
from .answering import Answers, answer_items, import_answers
from .judging import load_answer
from .plots import answers_sheet, results_plot
from .report import Run, write_report
from .results import number_cells
from .runs import BenchmarkRun, BenchmarkRuns, origin_of

_SHOWN = 20


def _answers_origin(foundry: FoundryResource, partition: str) -> object:
    run, shard = BenchmarkRuns.of(foundry).of_answers(partition)
    imported = run.imported and [str(run.imported), file_version(str(run.imported))]
    return [origin_of(shard.items), imported]


def _judgements_origin(foundry: FoundryResource, partition: str) -> object:
    run, shard = BenchmarkRuns.of(foundry).of_judgements(partition)
    return [run.judge, foundry.home.lake.content_hash(BENCHMARK_ANSWERS, shard.name)]


def _results_origin(foundry: FoundryResource, partition: str) -> object:
    run, lake = BenchmarkRuns.of(foundry).of_results(partition), foundry.home.lake
    return [lake.content_hash(JUDGEMENTS, run.judgements_of(shard)) for shard in run.shards]


ANSWERS = Node(
    name="benchmark_answers",
    group="benchmarks",
    description="What the promoted agents, and other systems, answer to the items of benchmarks.",
    tables=(BENCHMARK_ANSWERS,),
    ledger=(QUARANTINE,),
    deps=("promotion",),
    sections=("benchmarks.seed", "loop"),
    partitions=Partitions(
        dg.DynamicPartitionsDefinition(name="benchmark_shards"),
        lambda foundry: list(
            dict.fromkeys(s.name for run in BenchmarkRuns.of(foundry).all for s in run.shards)
        ),
        _answers_origin,
    ),
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
    partitions=Partitions(
        dg.DynamicPartitionsDefinition(name="benchmark_judgings"),
        lambda foundry: [
            run.judgements_of(shard)
            for run in BenchmarkRuns.of(foundry).all
            for shard in run.shards
        ],
        _judgements_origin,
    ),
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
    partitions=Partitions(
        dg.DynamicPartitionsDefinition(name="benchmark_runs"),
        lambda foundry: [run.name for run in BenchmarkRuns.of(foundry).all],
        _results_origin,
    ),
    optional=True,
)


@dg.asset(**ANSWERS.asset_args())
def benchmark_answers(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    runs = BenchmarkRuns.of(foundry)
    run, shard = runs.of_answers(context.partition_key)
    if run.imported:
        answers = import_answers(foundry.home, shard, run.imported)
    else:
        profile, progress = foundry.settings, progress_of(context)
        answers = asyncio.run(answer_items(foundry.home, profile, shard, runs.settings, progress))
    for table, rows in answers.records.items():
        foundry.home.lake.write(table, rows, f"{REQUESTS}{shard.name}")
    tables = {BENCHMARK_ANSWERS: answers.rows, QUARANTINE: answers.quarantine}
    return ANSWERS.record(context, foundry, tables, _answers_metadata(answers))


def _answers_metadata(answers: Answers) -> dict[str, Any]:
    statuses = Counter(row.status for row in answers.rows)
    return {
        "statuses": table_metadata(
            [{"status": status, "items": count} for status, count in sorted(statuses.items())]
        ),
        "quarantine": table_metadata([row.model_dump() for row in answers.quarantine[:_SHOWN]]),
        **model_call_costs(answers.records.get(MODEL_CALLS, [])),
    }


@dg.asset(**JUDGEMENT_SET.asset_args())
def benchmark_judgements(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    runs = BenchmarkRuns.of(foundry)
    run, shard = runs.of_judgements(context.partition_key)
    answers = foundry.rows(BENCHMARK_ANSWERS, shard.name)
    progress = progress_of(context)
    judged = asyncio.run(runs.judge(run, answers, context.partition_key, progress))
    unread = [row.model_dump() for row in judged.rows if row.value is None]
    metadata = {
        "judge": run.judge,
        "unreadable": len(unread),
        "unreadable_answers": table_metadata(unread[:_SHOWN]),
        **model_call_costs(judged.calls),
    }
    tables: dict[Any, Any] = {JUDGEMENTS: judged.rows, MODEL_CALLS: judged.calls}
    return JUDGEMENT_SET.record(context, foundry, tables, metadata)


@dg.asset(**RESULTS.asset_args())
def benchmark_results(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    runs = BenchmarkRuns.of(foundry)
    run = runs.of_results(context.partition_key)
    answers, result = runs.answers_of(run), runs.evaluate(run)
    sheet = answers_sheet(foundry.home.images, answers, result.scores)
    tables = {BENCHMARK_RESULTS: result.results, BENCHMARK_SCORES: result.scores}
    row_counts = RESULTS.write(context, foundry, tables)
    page = foundry.home.exports / "benchmarks" / f"{run.name}.html"
    write_report(foundry.home, [Run.read(foundry.home, run.name)], page)
    metadata = {
        "official_layout": _export(foundry, run, answers),
        "report": dg.MetadataValue.path(str(page)),
        "numbers": table_metadata([_number(row) for row in result.results]),
        "plot": image_metadata(results_plot(result.results), f"Results of {run.name}"),
        "answers": image_metadata(sheet, "The worst answers, and the best"),
    }
    return RESULTS.describe(context, foundry, row_counts, metadata)


def _export(
    foundry: FoundryResource, run: BenchmarkRun, answers: list[BenchmarkAnswerRow]
) -> dg.MetadataValue:
    """The system's own answers as the official scorer reads them; imported ones are so already."""
    if run.imported:
        return dg.MetadataValue.path(str(run.imported))
    contents = ((row.item_id, load_answer(foundry.home.images, row)) for row in answers)
    folder = foundry.home.exports / "benchmarks" / run.benchmark.name
    return dg.MetadataValue.path(str(run.benchmark.write_answers(folder, run.system, contents)))


def _number(row: BenchmarkResultRow) -> dict[str, object]:
    metric, value, interval = number_cells(row)
    return {
        "number": metric,
        "value": value,
        f"{row.confidence:.0%} interval": interval,
        "items": f"{row.items} of {row.of_items}",
        "unscored": f"{row.unscored:.1%}",
    }
