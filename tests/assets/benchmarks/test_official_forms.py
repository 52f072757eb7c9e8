"""Benchmarks of the field from imported answers to official numbers, with a judge that says one
thing."""

import asyncio
import json

import pytest
from PIL import Image

from assets.benchmarks.answering import Shard, import_answers
from assets.benchmarks.benchmark import AnswerStep
from assets.benchmarks.judging import ModelJudge
from assets.benchmarks.results import evaluate_run
from assets.benchmarks.runs import open_benchmark
from assets.benchmarks.settings import BenchmarkRunSettings, BenchmarksSettings
from inference.calls.progress import NullProgress
from inference.questions import TextAnswer
from inference.settings import Limits
from tests.assets.benchmarks.official_files import (
    comm_document,
    ueval_row,
    write_comm,
    write_geneval2,
    write_rise,
    write_ueval,
    write_weave,
    write_wise,
)
from warehouse import EncodedImage, Home

PICTURE = EncodedImage.of(Image.new("RGB", (48, 48), "teal"))
WISE = "Consistency: 2\nRealism: 2\nAesthetic Quality: 2"
COMM = {"style": 8, "entity": 8, "trend": 8, "overall": 8, "completeness": 8, "image_quality": 8}
# Benchmark -> its files, what the judge says, a number of the results.
CASES = {
    "ueval": (
        lambda folder: write_ueval(folder, [ueval_row(str(n), "art") for n in (1, 2, 3)]),
        '{"criteria_met": true}',
        ("art/average", 100),
    ),
    # Of the four turns of two conversations, those of one have a picture each.
    "weave": (write_weave, "Score: 8", ("overall", 0.4)),
    # Of three objects that are asked for, two are in the picture that is missing.
    "geneval2": (write_geneval2, "Yes.", ("object", 100 / 3)),
    "wise-legacy": (write_wise, WISE, ("chemistry", 1)),
    # With this scorer an item without a question about consistency is never complete.
    "rise": (write_rise, "Final score: 5", ("spatial/accuracy", 50)),
    # Its second question needs another form of answer: the item is unscored.
    "comm-task4": (
        lambda folder: write_comm(folder, [comm_document()]),
        json.dumps(COMM),
        ("irs", None),
    ),
}


class SameJudge:
    backend, model = "test", "same"

    def __init__(self, says):
        self.says = says

    async def ask(self, question):
        return TextAnswer(self.says)


@pytest.mark.parametrize("name", CASES)
def test_imported_answers_get_official_numbers(name, tmp_path):
    write, says, (metric, value) = CASES[name]
    source, home = tmp_path / "official", Home(str(tmp_path / "home"))
    source.mkdir()
    write(source)
    benchmark = open_benchmark(name, BenchmarkRunSettings(source=str(source)), home)
    first, *others = [item.item_id for item in benchmark.items]
    answer = (AnswerStep("Fold it.", PICTURE), AnswerStep("Done.", PICTURE))
    answers = [(first, answer), *((item, answer) for item in others[1:])]
    folder = benchmark.write_answers(tmp_path / "answers", "other", answers)
    rows = import_answers(home, Shard(benchmark, "other", benchmark.items, "s"), folder).rows
    assert {row.status for row in rows} == ({"imported", "missing"} if others else {"imported"})
    assert any(rows[0].images)
    judge = ModelJudge(home, SameJudge(says), Limits(), 2, NullProgress())
    judgements, _ = asyncio.run(judge.judge(benchmark, rows, "s"))
    assert {row.item_id for row in judgements} == {row.item_id for row in rows}
    settings = BenchmarksSettings(resamples=100)
    found = evaluate_run("n", benchmark, "other", "test/same", rows, judgements, settings)
    results = {row.metric: row for row in found.results}
    assert results[benchmark.headline].headline and results[metric].items == len(rows)
    assert results[metric].value == (value if value is None else pytest.approx(value))
