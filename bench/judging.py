"""Benchmarks of the field: a judge of fixed latency, and the report of a large run."""

import asyncio
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import JsonValue

from assets.benchmarks.benchmark import (
    Answer,
    Benchmark,
    Item,
    ItemMetrics,
    JudgeCall,
    Metrics,
    Values,
)
from assets.benchmarks.judging import judge_answers
from inference.engine.progress import NullProgress
from inference.roles import TextAnswer
from inference.settings import Limits
from schemas.benchmarks import BenchmarkAnswerRow
from warehouse import EncodedImage, Home

MEANING = {
    "judged_share_of_ideal": (
        "answers with a picture that a judge of 0.5 s judges in a minute, 16 at a time, as a share "
        "of what it could",
        ">= 0.9",
    )
}
_ITEMS, _SLOTS, _SECONDS = 320, 16, 0.5


class _OneQuestion(Benchmark):
    """One question about every answer."""

    name, headline = "bench", "score"

    def __init__(self) -> None:
        self.items = [Item(f"{number}", "all", "Draw a house.") for number in range(_ITEMS)]

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        images = tuple(step.image for step in answer if step.image)
        return [JudgeCall("score", f"Grade answer {item.item_id}.", images)]

    def parse(self, call: str, text: str) -> JsonValue:
        return int(text)

    def metrics(self, item: Item, values: Values) -> Metrics:
        return {"score": 1.0}

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        return {"score": 1.0}

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        raise NotImplementedError  # nothing is written here

    def read_answers(self, source: Path) -> Iterator[tuple[str, Answer]]:
        raise NotImplementedError  # nothing is read here


class _SlowJudge:
    backend, model = "bench", "slow"

    async def answer(
        self, text: str, images: Sequence[EncodedImage], unreadable: str | None = None
    ) -> TextAnswer:
        await asyncio.sleep(_SECONDS)
        return TextAnswer("7")


def measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder)
        benchmark, image = _OneQuestion(), EncodedImage.white((512, 512))
        rows = [_row(item, home.images.put(image)) for item in benchmark.items]
        limits = Limits(agents=_SLOTS)
        start = time.perf_counter()
        asyncio.run(
            judge_answers(home, benchmark, rows, _SlowJudge(), "bench", limits, 2, NullProgress())
        )
        ideal = _ITEMS * _SECONDS / _SLOTS
        return {"judged_share_of_ideal": ideal / (time.perf_counter() - start)}


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
