"""Benchmarks of the field: a judge of fixed latency, and the report of a large run."""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assets.benchmarks.benchmark import (
    Answer,
    Benchmark,
    Item,
    ItemMetrics,
    JudgeCall,
    Metrics,
    Values,
)
from assets.benchmarks.judging import ModelJudge
from assets.benchmarks.report import write_report
from assets.benchmarks.results import Run, evaluate_run
from assets.benchmarks.settings import BenchmarksSettings
from inference.calls.progress import NullProgress
from inference.questions import Question, TextAnswer
from inference.settings import Limits
from schemas.benchmarks import BENCHMARK_ANSWERS, JUDGEMENTS, BenchmarkAnswerRow, JudgementRow
from warehouse import EncodedImage, Home

MEANING = {
    "judged_share_of_ideal": (
        "answers with a picture that a judge of 0.5 s judges in a minute, 16 at a time, as a share "
        "of what it could",
        ">= 0.9",
    ),
    "report_seconds": (
        "the report of 1,000 items with a picture of 512 px each, read from a home, in seconds",
        "<= 30",
    ),
}
_ITEMS, _SLOTS, _SECONDS = 320, 16, 0.5
_REPORTED = 1000


class _OneQuestion(Benchmark):
    """One question about every answer."""

    name, headline = "bench", "score"

    def __init__(self, items: int) -> None:
        self.items = [Item(f"{number}", "all", "Draw a house.") for number in range(items)]

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        images = tuple(step.image for step in answer if step.image)
        return [JudgeCall("score", f"Grade answer {item.item_id}.", int, images)]

    def metrics(self, item: Item, values: Values) -> Metrics:
        return {"score": 1.0}

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        return {"score": 1.0}

    def write_answer(self, folder: Path, item: Item, answer: Answer) -> None:
        raise NotImplementedError  # nothing is written here

    def answers_in(self, source: Path) -> Iterator[tuple[str, Answer]]:
        raise NotImplementedError  # nothing is read here


class _SlowJudge:
    backend, model = "bench", "slow"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def ask(self, question: Question[Any]) -> Any:
        await asyncio.sleep(self._seconds)
        return TextAnswer("7")


def measure() -> dict[str, float]:
    return {
        "judged_share_of_ideal": _ITEMS * _SECONDS / _SLOTS / _judging_seconds(),
        "report_seconds": _report_seconds(),
    }


def _judging_seconds() -> float:
    with tempfile.TemporaryDirectory() as folder:
        home, benchmark = Home(folder), _OneQuestion(_ITEMS)
        rows = _rows(home, benchmark)
        start = time.perf_counter()
        _judge(home, benchmark, rows, _SECONDS, _SLOTS)
        return time.perf_counter() - start


def _report_seconds() -> float:
    with tempfile.TemporaryDirectory() as folder:
        home, benchmark = Home(folder), _OneQuestion(_REPORTED)
        rows = _rows(home, benchmark)
        judgements = _judge(home, benchmark, rows, seconds=0, slots=256)
        settings = BenchmarksSettings(resamples=100)
        name = "bench.bench.bench"
        run = evaluate_run(name, benchmark, "bench", "bench", rows, judgements, settings)
        home.lake.write(BENCHMARK_ANSWERS, rows, "bench")
        home.lake.write(JUDGEMENTS, judgements, f"{name}.0000")
        run.write(home)
        start = time.perf_counter()
        write_report(home, [Run.read(home, name)], Path(folder) / "report.html")
        return time.perf_counter() - start


def _judge(
    home: Home, benchmark: Benchmark, rows: Sequence[BenchmarkAnswerRow], seconds: float, slots: int
) -> list[JudgementRow]:
    limits, model = Limits(agents=slots), _SlowJudge(seconds)
    judge = ModelJudge(home, model, limits, 2, NullProgress())
    judgements, _ = asyncio.run(judge.judge(benchmark, rows, "bench"))
    return judgements


def _rows(home: Home, benchmark: Benchmark) -> list[BenchmarkAnswerRow]:
    image = home.images.put(EncodedImage.white((512, 512)))
    return [_row(item, image) for item in benchmark.items]


def _row(item: Item, sha256: str) -> BenchmarkAnswerRow:
    return BenchmarkAnswerRow(
        benchmark="bench",
        system="bench",
        shard="bench",
        item_id=item.item_id,
        group=item.group,
        request=item.text,
        input_images=[],
        texts=["A house."],
        images=[sha256],
        status="imported",
        generation_id=None,
        seed=None,
        cost_usd=None,
        seconds=None,
    )
