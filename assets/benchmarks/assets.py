"""The assets of benchmarks: answers, judgements and results, each in partitions of its own."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import isnan, nan
from statistics import fmean
from typing import Any

import dagster as dg

from inference.generation.files import file_version
from inference.generation.trajectory_view import AttemptView, StepView, TrajectoryView
from inference.roles import PlanStep
from schemas.benchmarks import (
    BENCHMARK_ANSWERS,
    BENCHMARK_RESULTS,
    BENCHMARK_SCORES,
    JUDGEMENTS,
    BenchmarkAnswerRow,
    BenchmarkResultRow,
    BenchmarkScoreRow,
)
from schemas.trajectories import MODEL_CALLS, QUARANTINE
from warehouse import ImageStore

from ..core.checks import Violations, blocking_checks, damaged_images
from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, model_call_costs, table_metadata
from ..core.node import Node, Partitions
from ..core.plotting import ACCENT, OTHER, figure_png, label_rows, new_figure, plot_mean, small_png
from ..core.progress import progress_of
from ..trajectories.contact_sheet import contact_sheet
from .answering import Answers, answer_items, import_answers
from .judging import load_answer
from .report import write_report
from .results import STEP_METRIC, Run, number_cells
from .runs import BenchmarkRun, BenchmarkRuns, origin_of

_SHOWN, _SHEET_ROWS = 20, 6


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
    tables = {BENCHMARK_ANSWERS: answers.rows, QUARANTINE: answers.quarantine}
    return ANSWERS.record(context, foundry, tables, _answers_metadata(answers))


def _answers_metadata(answers: Answers) -> dict[str, Any]:
    statuses = Counter(row.status for row in answers.rows)
    return {
        "statuses": table_metadata(
            [{"status": status, "items": count} for status, count in sorted(statuses.items())]
        ),
        "quarantine": table_metadata([row.model_dump() for row in answers.quarantine[:_SHOWN]]),
        **model_call_costs(answers.calls),
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
    found = runs.evaluate(run)
    page = foundry.home.exports / "benchmarks" / f"{run.name}.html"
    write_report(foundry.home, [found], page)
    metadata = {
        "official_layout": _export(foundry, run, found.answers),
        "report": dg.MetadataValue.path(str(page)),
        "numbers": table_metadata([_number(row) for row in found.results]),
        "plot": image_metadata(_results_plot(found.results), f"Results of {run.name}"),
        "answers": image_metadata(
            _answers_sheet(foundry.home.images, found), "The worst answers, and the best"
        ),
    }
    tables = {BENCHMARK_RESULTS: found.results, BENCHMARK_SCORES: found.scores}
    return RESULTS.record(context, foundry, tables, metadata)


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


def _answers_sheet(images: ImageStore, run: Run) -> bytes:
    """Some answers, half of them those with the lowest metrics, half with the highest."""
    means = _item_means(run.scores)
    scored = [row for row in run.answers if row.item_id in means]
    ranked = sorted(scored, key=lambda row: means[row.item_id])
    half = _SHEET_ROWS // 2
    shown = ranked if len(ranked) <= _SHEET_ROWS else [*ranked[:half], *ranked[-half:]]
    views = [_view(images, row, means[row.item_id]) for row in shown]
    return small_png(contact_sheet(views, image_size=112), colours=255)


def _item_means(scores: Sequence[BenchmarkScoreRow]) -> Mapping[str, float]:
    """Item -> mean of its metrics; items with an unscored one are left out."""
    values: dict[str, list[float]] = defaultdict(list)
    for row in scores:
        if not row.metric.startswith(STEP_METRIC):
            values[row.item_id].append(nan if row.value is None else row.value)
    means = {item: fmean(own) for item, own in values.items()}
    return {item: mean for item, mean in means.items() if not isnan(mean)}


def _view(images: ImageStore, row: BenchmarkAnswerRow, mean: float) -> TrajectoryView:
    steps = []
    for number, (text, sha256) in enumerate(zip(row.texts, row.images, strict=True), 1):
        step = PlanStep(number, auxiliary_text=text or "no text")
        attempts = [AttemptView(images.get(sha256), chosen=True)] if sha256 else []
        steps.append(StepView(step, attempts))
    return TrajectoryView(row.request, steps=steps, category=row.group, subcategory=f"{mean:.2f}")


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
    _, shard = BenchmarkRuns.of(foundry).of_judgements(partition)
    lake = foundry.home.lake
    answered = lake.read(BENCHMARK_ANSWERS, [shard.name], ["item_id"])["item_id"].to_pylist()
    judged = lake.read(JUDGEMENTS, [partition], ["item_id"])["item_id"].to_pylist()
    return [{"item_id": item} for item in answered if item not in set(judged)]


benchmark_answers_checks = blocking_checks(
    ANSWERS, images_intact=("Every image is in the store, as it was generated", _images_intact)
)
benchmark_judgements_checks = blocking_checks(
    JUDGEMENT_SET, answers_judged=("Every answer was judged", _answers_judged)
)
benchmark_results_checks = blocking_checks(RESULTS)
