"""The report of benchmark runs: numbers, worst items, two runs, and nothing from outside."""

from datetime import UTC, datetime

import pytest
from PIL import Image

from assets.benchmarks.report import compare_runs, published_tables, write_report
from assets.benchmarks.results import Run
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
from tests.helpers.command import interleave
from warehouse import EncodedImage, Home

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture
def home(tmp_path):
    return Home(str(tmp_path / "home"))


def add_run(home, system, values, benchmark="rise", words="fine"):
    """Values of items, None: unscored; every answer has one picture."""
    name, shard = f"{benchmark}.{system}.exact", f"{benchmark}.{system}.0000"
    picture = home.images.put(EncodedImage.of(Image.new("RGB", (64, 64), "red")))
    run = {"benchmark": benchmark, "system": system}
    judged = run | {"judge": "exact"}
    answers = [
        BenchmarkAnswerRow(
            **run,
            shard=shard,
            item_id=f"i{number}",
            group="causal",
            request=HOSTILE,
            input_images=[],
            texts=["a", "b"],
            images=[picture, None],
            status="complete",
            generation_id=None,
            seed=None,
            cost_usd=None,
            seconds=2.0,
        )
        for number in range(len(values))
    ]
    asked = {"call": "reasoning", "value": "1", "answer": words, "tries": 1, "error": None}
    judgements = [
        JudgementRow(**judged, shard=shard, item_id=row.item_id, **asked) for row in answers
    ]
    scores = [
        BenchmarkScoreRow(
            **judged, item_id=f"i{number}", group="causal", metric="accuracy", value=value
        )
        for number, value in enumerate(values)
    ]
    numbers = {"confidence": 0.95, "items": len(values), "unscored": 0.25, "of_items": 360}
    results = [
        BenchmarkResultRow(
            **judged,
            **numbers,
            metric=metric,
            headline=metric == "accuracy",
            value=value,
            low=value,
            high=value,
            evaluated_at=datetime.now(UTC),
        )
        for metric, value in (("accuracy", 50.0), ("spatial/accuracy", None))
    ]
    home.lake.write(BENCHMARK_ANSWERS, answers, shard)
    home.lake.write(JUDGEMENTS, judgements, f"{name}.0000")
    home.lake.write(BENCHMARK_SCORES, scores, name)
    home.lake.write(BENCHMARK_RESULTS, results, name)
    return name


def test_a_report_of_one_run(capsys, home, tmp_path):
    name = add_run(home, "ours", [1.0, 0.0, None, 1.0], words=HOSTILE)
    done = interleave(capsys, "report", name, "--home", home.root, "--out", tmp_path / "page.html")
    assert done.returncode == 0 and done.stdout.strip() == str(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page and "<img src=x" not in page
    assert "&lt;script&gt;alert(1)" in page and "http://" not in page and "https://" not in page
    assert "4 of 360" in page and "25.0 %" in page and "unknown" in page
    assert page.index("i1 <span") < page.index("i0 <span"), "worst items come first"
    assert "Nano Banana Pro" in page and "47.20" in page, "published numbers are beside ours"
    missing = page[page.index(">spatial/accuracy<") :][:120]
    assert "–" in missing and "0.000" not in missing
    assert page.count("data:image/webp") == 3, "one for every item that is shown"


def test_drift_over_steps(home, tmp_path):
    """From the exact judge's values, for steps of their own; other benchmarks have none."""
    run = Run.read(home, add_run(home, "ours", [1.0, 0.0]))
    assert [(each.number, each.pictures, each.quality) for each in run.by_step()] == [
        (1, 1.0, None),
        (2, 0.0, None),
    ]
    shared = {"benchmark": "rise", "system": "ours", "judge": "exact", "group": "causal"}
    steps = [
        BenchmarkScoreRow(**shared, item_id=item, metric=f"step-{number}", value=value)
        for item, number, value in (("i0", 1, 1.0), ("i1", 1, 1.0), ("i0", 3, 0.5))
    ]
    home.lake.write(BENCHMARK_SCORES, [*run.scores, *steps], run.name)
    run = Run.read(home, run.name)
    first, second, third = run.by_step()
    assert (first.quality.mean, first.quality.count, second.quality) == (1.0, 2, None)
    assert (third.reached, third.pictures, third.quality.mean) == (0, None, 0.5)
    assert run.metrics == ["accuracy"] and run.groups("accuracy") == {"causal": 0.5}
    page = write_report(home, [run], tmp_path / "page.html").read_text()
    assert "as a whole" not in page and "0.500 to 0.500" in page


def test_two_runs_are_compared_item_by_item(home, tmp_path):
    names = [
        add_run(home, "one", [0.0, 0.0, 1.0, None, 1.0]),
        add_run(home, "two", [1.0, 0.0, 0.0, 1.0, 1.0]),
    ]
    runs = [Run.read(home, name) for name in names]
    (found,) = compare_runs(*runs)
    assert (found.gap.count, found.wins, found.ties, found.losses) == (4, 1, 2, 1)
    assert found.gap.mean == 0 and found.gap.low < 0 < found.gap.high
    page = write_report(home, runs, tmp_path / "page.html").read_text()
    assert "Largest wins" in page and "Largest losses" in page
    other = Run.read(home, add_run(home, "three", [1.0], benchmark="opening"))
    with pytest.raises(FoundryError, match="different benchmarks"):
        compare_runs(runs[0], other)


def test_runs_are_listed_and_unknown_ones_refused(capsys, home):
    done = interleave(capsys, "report", "--home", home.root)
    assert "No runs yet" in done.stdout
    name = add_run(home, "ours", [1.0])
    assert interleave(capsys, "report", "--home", home.root).stdout.strip() == name
    done = interleave(capsys, "report", "nothing", "--home", home.root)
    assert done.returncode == 1 and f"there are: {name}" in done.stderr


def test_published_numbers_show_printed_and_recomputed_averages():
    table = published_tables()["ueval"]
    system = "InterleaveThinker+FLUX.2-klein-9B"
    assert table["systems"][system]["average"] == 66.3
    assert table["recomputed"][system]["average"] == 64.66
    cells = [value for name, value in table["systems"][system].items() if name != "average"]
    assert sum(cells) / len(cells) == pytest.approx(64.66, abs=0.01)
