"""`interleave agreement` with verdict files, and a judge behind an API; see `test_evaluate.py`."""

import json

import pytest
from PIL import Image

from tests.assets.benchmarks.official_files import opening_record, verdict_row, write_opening
from tests.helpers.command import interleave

A_SYSTEM, B_SYSTEM = "First", "Second"


def _verdicts(path, winners):
    rows = [
        verdict_row(f"0301{number:03d}", A_SYSTEM, B_SYSTEM, winner)
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
