"""Benchmarks of the field through the command: imported answers, a judge, official numbers."""

import json

import pytest
from PIL import Image

from assets.benchmarks.benchmark import AnswerStep
from assets.benchmarks.catalogue import open_benchmark
from assets.benchmarks.settings import BenchmarkRunSettings
from schemas.benchmarks import BENCHMARK_ANSWERS, BENCHMARK_RESULTS, JUDGEMENTS
from tests.assets.benchmarks.comm import comm_files
from tests.assets.benchmarks.rise import conftest as rise_files
from tests.assets.benchmarks.ueval import ueval_files
from tests.assets.benchmarks.wise.conftest import wise_folder  # noqa: F401
from tests.helpers.command import interleave
from warehouse import EncodedImage, Home

PICTURE = EncodedImage.of(Image.new("RGB", (48, 48), "teal"))
SCORES = "Consistency: 2\nRealism: 2\nAesthetic Quality: 2"
COMM = {"style": 8, "entity": 8, "trend": 8, "overall": 8, "completeness": 8, "image_quality": 8}


def ueval(folder):
    rows = [ueval_files.row("1"), ueval_files.row("2", "space"), ueval_files.row("3", "life")]
    ueval_files.write_rows(folder, rows)
    return folder


def rise(folder):
    return rise_files.write_rows(folder, rise_files.ROWS)


def comm(folder):
    comm_files.write_documents(folder, [comm_files.document()])
    comm_files.write_images(folder)
    return folder


@pytest.fixture
def source(request, tmp_path):
    make = request.param
    if isinstance(make, str):
        return request.getfixturevalue(make)
    folder = tmp_path / "official"
    folder.mkdir()
    return make(folder)


@pytest.mark.parametrize(
    ("name", "source", "says", "expected"),
    [
        ("ueval", ueval, '{"criteria_met": true}', ("art/average", 100)),
        ("wise-legacy", "wise_folder", SCORES, ("chemistry", 1)),
        # With this scorer an item without a question about consistency is never complete.
        ("rise", rise, "Final score: 5", ("spatial/accuracy", 50)),
        # Its second question needs another form of answer: the item is unscored.
        ("comm-task4", comm, json.dumps(COMM), ("irs", None)),
    ],
    indirect=["source"],
)
def test_imported_answers_get_official_numbers(
    capsys, judge, profile, tmp_path, name, source, says, expected
):
    judge.says, home = says, Home(str(tmp_path / "home"))
    benchmark = open_benchmark(name, BenchmarkRunSettings(source=str(source)), home)
    first, *others = [item.item_id for item in benchmark.items]
    answer = (AnswerStep("Fold it.", PICTURE), AnswerStep("Done.", PICTURE))
    answers = [(first, answer), *((item, answer) for item in others[1:])]
    folder = benchmark.write_answers(tmp_path / "answers", "other", answers)
    options = ("--profile", profile, "--home", home.root, "--source", source)
    other = ("--answers", folder, "--system", "other", "--judge", "openai/m")
    done = interleave(capsys, "evaluate", name, *options, *other)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["item_id"]: row for row in home.lake.read(BENCHMARK_ANSWERS).to_pylist()}
    assert {row["status"] for row in rows.values()} <= {"imported", "missing"}
    assert rows[first]["status"] == "imported" and any(rows[first]["images"])
    judged = home.lake.read(JUDGEMENTS).to_pylist()
    assert {row["item_id"] for row in judged} == set(rows)
    results = {row["metric"]: row for row in home.lake.read(BENCHMARK_RESULTS).to_pylist()}
    headline = results[benchmark.headline]
    assert headline["headline"] and headline["items"] == len(rows)
    metric, value = expected
    found = results[metric]["value"]
    assert found is None if value is None else found == pytest.approx(value)
