"""`interleave evaluate`, with a judge behind OpenAI's API, on files of OpENING's form."""

import json
import subprocess
from collections import Counter
from contextlib import suppress

import pytest
from PIL import Image

from assets.benchmarks.opening import CRITERIA
from assets.benchmarks.results import run_names
from assets.benchmarks.settings import BenchmarkJudgeSettings
from schemas.benchmarks import BENCHMARK_ANSWERS, BENCHMARK_RESULTS, BENCHMARK_SCORES, JUDGEMENTS
from schemas.generations import GENERATIONS
from schemas.trajectories import MODEL_CALLS
from tests.assets.benchmarks.conftest import UNREADABLE
from tests.assets.benchmarks.official_files import (
    comm_document,
    opening_record,
    write_comm,
    write_opening,
)
from tests.helpers.automation import wait_until
from tests.helpers.command import INTERLEAVE, interleave
from tests.helpers.profiles import changed_profile
from warehouse import Home

REQUEST = "Show how to build a snowman, step by step."


@pytest.fixture
def source(tmp_path):
    """Three items; no judge can grade the last one."""
    folder = tmp_path / "official"
    texts = ("Draw a red house.", "Draw a red house beside a tree.", UNREADABLE)
    write_opening(folder, [opening_record(n, text) for n, text in enumerate(texts, 1)])
    return folder


def test_answers_are_judged_priced_and_summarized(capsys, judge, profile, source, tmp_path):
    home = Home(str(tmp_path / "home"))
    judge.hesitates = True
    options = ("--profile", profile, "--home", home.root, "--source", source)
    done = interleave(capsys, "evaluate", "opening", *options, "--judge", "openai/m")
    assert done.returncode == 0, done.stderr
    assert "3 items; at least 3 questions to openai/m" in done.stdout
    assert "overall" in done.stdout and "7.000" in done.stdout

    answers = home.lake.read(BENCHMARK_ANSWERS).to_pylist()
    assert len(answers) == 3 and len({row["seed"] for row in answers}) == 3
    assert any(image for row in answers for image in row["images"])
    judged = {row["item_id"]: row for row in home.lake.read(JUDGEMENTS).to_pylist()}
    assert [judged[f"030100{n}"]["tries"] for n in (1, 2, 3)] == [2, 2, 2]
    assert judged["0301003"]["value"] is None and judged["0301003"]["answer"] == "It is good."
    scores = home.lake.read(BENCHMARK_SCORES).to_pylist()
    values = {(row["item_id"], row["metric"]): row["value"] for row in scores}
    assert values["0301001", "overall"] == 7 and values["0301003", "overall"] is None
    results = {row["metric"]: row for row in home.lake.read(BENCHMARK_RESULTS).to_pylist()}
    overall = results["overall"]
    assert overall["headline"] and overall["value"] == overall["low"] == overall["high"] == 7
    assert overall["unscored"] == pytest.approx(1 / 3) and overall["items"] == 3
    paid = [r for r in home.lake.read(MODEL_CALLS).to_pylist() if r["role"] == "benchmark_judge"]
    assert len(paid) == 6 and all(row["cost_usd"] == pytest.approx(0.002) for row in paid)
    assert home.lake.is_absent(GENERATIONS), "items of a benchmark never become training data"

    official = home.exports / "benchmarks" / "opening" / f"{answers[0]['system']}_output"
    content = json.loads((official / "0301001.json").read_text())
    assert (official / content["conversations"][1]["output"][0]["image"]).is_file()

    assert _temperatures(judge) == {0}
    asked = sum(judge.asked.values())
    again = interleave(capsys, "evaluate", "opening", *options, "--judge", "openai/m", "--force")
    assert again.returncode == 0, again.stderr
    assert sum(judge.asked.values()) == asked, "no finished call is made again"
    _another_judge_is_asked_about_a_sample(capsys, judge, options, home, tmp_path)


def _another_judge_is_asked_about_a_sample(capsys, judge, options, home, tmp_path):
    """`interleave agreement` with a run."""
    (name,) = run_names(home)
    asked = sum(judge.asked.values())
    judge.says = json.dumps({name: {"reason": "weak", "score": 3} for name in CRITERIA})
    second = ("--judge", "openai/another", "--sample", 2, "--out", tmp_path / "page.html")
    done = interleave(capsys, "agreement", name, *options, *second)
    assert done.returncode == 0, done.stderr
    assert sum(judge.asked.values()) == asked + 2, "a sample of two"
    assert "agreement: 0.000" in done.stdout and "1 cases; 50.0% unscored" in done.stdout
    page = (tmp_path / "page.html").read_text()
    assert "Where the judges differ" in page and "data:image/webp" in page and "weak" in page
    assert run_names(home) == [name], "no run of its own"
    calls = home.lake.read(MODEL_CALLS).to_pylist()
    assert sum(row["model"].startswith("another") for row in calls) == 2, "but paid calls are kept"
    assert interleave(capsys, "agreement", name, *options, *second).returncode == 0
    assert sum(judge.asked.values()) == asked + 2, "no finished call is made again"


def _temperatures(judge):
    return {json.loads(request)["temperature"] for request in judge.asked}


def test_other_systems_answers_are_imported(capsys, judge, profile, tmp_path):
    """To CoMM's documents, whose judge has the temperature of its protocol."""
    home, folder = Home(str(tmp_path / "home")), tmp_path / "other" / "17_task4"
    source = write_comm(tmp_path, [comm_document(), comm_document("18")], images=False)
    folder.mkdir(parents=True)
    Image.new("RGB", (64, 64), "green").save(folder / "1.png")
    answer = {"model_output": "(1) Done. <IMAGE>", "prediction_image_list": ["1.png"]}
    (folder / "results.json").write_text(json.dumps(answer))
    other = ("--answers", folder.parent, "--system", "other")
    options = ("--profile", profile, "--home", home.root, "--source", source, *other)
    done = interleave(capsys, "evaluate", "comm-task4", *options, "--judge", "openai/m")
    assert done.returncode == 0, done.stderr
    rows = home.lake.read(BENCHMARK_ANSWERS).to_pylist()
    assert [row["status"] for row in rows] == ["imported", "missing"]
    assert {row["system"] for row in rows} == {"other"}
    assert _temperatures(judge) == {1}
    chosen = {"backend": "openai", "model": {"model": "m", "temperature": 0.3}}
    assert BenchmarkJudgeSettings.model_validate(chosen).at(1).model.temperature == 0.3


def test_mistakes_are_one_line(capsys, tmp_path):
    for arguments, problem in (
        (["nothing"], "no benchmark nothing; there are: ueval"),
        (["opening"], "needs its official files: name their folder with --source"),
        (["opening", "--system", "other"], "need --answers FOLDER and --system NAME"),
        ([], "name a benchmark, such as sketch-interleaved"),
        (["sketch-edits", "--judge", "elsewhere/m"], "give BACKEND/MODEL"),
    ):
        done = interleave(capsys, "evaluate", *arguments, "--home", tmp_path / "home")
        assert done.returncode == 1 and problem in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_an_estimate_makes_no_call_and_needs_no_key(capsys, judge, profile, monkeypatch, source):
    home = ("--home", source.parent / "home", "--source", source)
    options = ("--profile", profile, *home, "--judge", "openai/m", "--limit", 2)
    done = interleave(capsys, "evaluate", "opening", *options, "--estimate")
    assert "2 items; at least 2 questions to openai/m" in done.stdout
    assert "about 0.01 USD (assumed)" in done.stdout and not judge.asked
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    options = ("--profile", "api", *home, "--judge", "gemini/gemini-2.5-pro")
    done = interleave(capsys, "evaluate", "opening", *options, "--estimate")
    assert done.returncode == 0, done.stderr
    assert "planner 3 calls, about 0.08 USD (assumed), generator 27 calls" in done.stdout
    refused = interleave(capsys, "evaluate", "opening", *options)
    assert refused.returncode == 1 and "GEMINI_API_KEY is not set" in refused.stderr


def test_sketch_benchmarks_of_a_profile_are_assets_and_need_no_judge_and_no_files(capsys, tmp_path):
    benchmarks = {"run": {"sketch-edits": {"limit": 3}}, "shard_size": 2}
    path = changed_profile(tmp_path, benchmarks=benchmarks, sketch={"picture_size": 96})
    home = Home(str(tmp_path / "home"))
    names = "benchmark_answers,benchmark_judgements,benchmark_results"
    options = ("--profile", path, "--home", home.root)
    done = interleave(capsys, "run", *options, "--select", names, "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert len(home.lake.partitions(BENCHMARK_ANSWERS)) == 2
    assert home.lake.rows(BENCHMARK_ANSWERS) == 3
    assert len(list((home.exports / "benchmarks").glob("*.html"))) == 1
    (run,) = home.lake.partitions(BENCHMARK_RESULTS)
    assert run.startswith("sketch-edits.sketch-") and run.endswith(".exact")
    rows = home.lake.read(BENCHMARK_RESULTS).to_pylist()
    assert {(row["items"], row["unscored"]) for row in rows} == {(3, 0.0)}
    headline = next(row for row in rows if row["headline"])
    assert headline["metric"] == "success" and 0 <= headline["value"] <= 1
    with_inputs = home.lake.read(BENCHMARK_ANSWERS).to_pylist()
    assert all(home.images.get(name) for row in with_inputs for name in row["input_images"])

    again = interleave(capsys, "evaluate", *options)
    assert again.returncode == 0 and "Materializing" not in again.stdout, "all is up to date"
    assert "sketch-edits by sketch-" in again.stdout and "judged by exact" in again.stdout
    named = interleave(capsys, "evaluate", *options, "--seed", 3, "--estimate")
    assert "sketch-edits-seed3.sketch-" in named.stdout, "other items are another benchmark"


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_command_repeats_no_finished_call(judge, profile, tmp_path):
    """Killed with -9 while it answers, and again while its answers are judged."""
    folder, home = tmp_path / "official", Home(str(tmp_path / "home"))
    write_opening(folder, [opening_record(n, f"{REQUEST} Number {n}.") for n in range(1, 13)])
    judge.seconds = 0.2
    profile.write_text(profile.read_text() + "limits: {agents: 2}\n")
    arguments = ["evaluate", "opening", "--profile", profile, "--home", home.root]
    arguments += ["--source", folder, "--judge", "openai/m"]
    command = [*INTERLEAVE, *map(str, arguments)]

    def started_until(condition):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            wait_until(condition, pause=0.02)
            run.kill()

    started_until(lambda: sum(_answering_calls(home).values()) > 9)
    before = _answering_calls(home)
    started_until(lambda: sum(judge.asked.values()) >= 5)
    assert sum(judge.asked.values()) < 12, "it was killed while it judged"
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    after = _answering_calls(home)
    assert before.keys() < after.keys() and set(after.values()) == {1}
    assert len(home.lake.read(JUDGEMENTS).to_pylist()) == 12
    assert sum(judge.asked.values()) <= 12 + 2, "at most the calls in flight are made again"


def _answering_calls(home):
    """(Item, request) -> how often it was journaled."""
    found = Counter()
    for path in (home.local / "journals" / "generations").rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError):  # the last one may be half-written
                call = json.loads(line)["call"]
                found[call["prompt_id"], call["request_hash"]] += 1
    return found
