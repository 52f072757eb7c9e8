"""`interleave agreement`: verdict files, a judge behind an API, and runs of a home."""

import json

import pytest
from PIL import Image

from assets.benchmarks.opening import CRITERIA
from assets.benchmarks.results import run_names
from schemas.trajectories import MODEL_CALLS
from tests.assets.benchmarks.official_files import opening_record, write_opening
from tests.helpers.command import interleave
from warehouse import Home

A_SYSTEM, B_SYSTEM = "First", "Second"


def _verdicts(path, winners):
    rows = [
        {
            "data_id": f"0301{number:03d}",
            "model_A": {"name": A_SYSTEM, "id": "1"},
            "model_B": {"name": B_SYSTEM, "id": "2"},
            "winner": winner,
        }
        for number, winner in enumerate(winners, 1)
    ]
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture
def people(tmp_path):
    return _verdicts(tmp_path / "people.json", ["A", "A", "B", "Tie(B)"])


def test_two_files_of_verdicts(capsys, people, tmp_path):
    other = _verdicts(tmp_path / "judge.json", ["A", "B", "B", "B"])
    done = interleave(capsys, "agreement", people, other)
    assert done.returncode == 0, done.stderr
    assert "agreement: 0.750" in done.stdout and "kappa: 0.500" in done.stdout
    assert "differ: 0301002 / First / Second: A and B" in done.stdout


def test_a_judge_is_asked_about_the_same_comparisons(capsys, judge, profile, people, tmp_path):
    source, answers = tmp_path / "official", tmp_path / "answers"
    records = [opening_record(number, "Draw a fox.") for number in (1, 2, 3, 4)]
    write_opening(source, records)
    for system in (A_SYSTEM, B_SYSTEM):
        folder = answers / f"{system}_output"
        folder.mkdir(parents=True)
        Image.new("RGB", (32, 32), "blue").save(folder / "1.png")
        for made in records:
            made["conversations"][1]["output"] = [{"text": system, "image": "1.png"}]
            (folder / f"{made['total_uid']}.json").write_text(json.dumps(made))
    judge.says = "Both are good.\nVerdict: A"
    options = ("--profile", profile, "--home", tmp_path / "home", "--judge", "openai/m")
    files = ("--source", source, "--answers", answers)
    done = interleave(capsys, "agreement", people, *options, *files)
    assert done.returncode == 0, done.stderr
    assert "agreement: 0.500" in done.stdout and "4 cases; 0.0% unscored" in done.stdout
    asked = sum(judge.asked.values())
    assert asked == 4 and interleave(capsys, "agreement", people, *options, *files).returncode == 0
    assert sum(judge.asked.values()) == asked, "no finished call is made again"
    judge.says = "I cannot say."
    files = ("--source", source, "--answers", answers, "--sample", 2)
    other = (*options[:-1], "openai/another")
    unread = interleave(capsys, "agreement", people, *other, *files)
    assert "agreement: missing" in unread.stdout and "100.0% unscored" in unread.stdout


def test_mistakes_are_one_line(capsys, people, tmp_path):
    done = interleave(capsys, "agreement", people)
    assert done.returncode == 1 and "--judge BACKEND/MODEL" in done.stderr
    done = interleave(capsys, "agreement", people, "--judge", "openai/m")
    assert "needs --source and --answers" in done.stderr
    done = interleave(capsys, "agreement", people, "--out", tmp_path / "page.html")
    assert "has no pictures" in done.stderr
    done = interleave(capsys, "agreement", "nothing", people, "--home", tmp_path / "home")
    assert "nothing is neither a file nor a run" in done.stderr


def test_a_sample_of_a_run_is_judged_by_another_judge(capsys, judge, profile, tmp_path):
    source = tmp_path / "official"
    write_opening(source, [opening_record(number, "Draw a red house.") for number in (1, 2, 3)])
    options = ("--profile", profile, "--home", tmp_path / "home", "--source", source)
    first = interleave(capsys, "evaluate", "opening", *options, "--judge", "openai/m")
    assert first.returncode == 0, first.stderr
    home = Home(str(tmp_path / "home"))
    (name,) = run_names(home)
    asked = sum(judge.asked.values())
    judge.says = json.dumps({name: {"reason": "weak", "score": 3} for name in CRITERIA})
    second = ("--judge", "openai/another", "--sample", 2, "--out", tmp_path / "page.html")
    done = interleave(capsys, "agreement", name, *options, *second)
    assert done.returncode == 0, done.stderr
    assert sum(judge.asked.values()) == asked + 2, "a sample of two"
    assert "agreement: 0.000" in done.stdout and "2 cases; 0.0% unscored" in done.stdout
    page = (tmp_path / "page.html").read_text()
    assert "Where the judges differ" in page and "data:image/webp" in page and "weak" in page
    assert run_names(home) == [name], "no run of its own"
    calls = home.lake.read(MODEL_CALLS).to_pylist()
    assert sum(row["model"].startswith("another") for row in calls) == 2, "but paid calls are kept"
    assert interleave(capsys, "agreement", name, *options, *second).returncode == 0
    assert sum(judge.asked.values()) == asked + 2, "no finished call is made again"
