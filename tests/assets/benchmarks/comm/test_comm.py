"""CoMM as the framework runs it: rounds of calls, scores, numbers, folders of answers."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from assets.benchmarks.benchmark import Answer, AnswerStep, ItemMetrics
from assets.benchmarks.comm import CoMM
from assets.benchmarks.comm.judge import SCORES
from assets.benchmarks.comm.layout import MARKER, split_steps
from schemas.errors import FoundryError
from tests.assets.benchmarks.comm.comm_files import document, write_documents, write_images
from warehouse import EncodedImage

REAL = "INTERLEAVE_COMM"
PINK = EncodedImage.of(Image.new("RGB", (8, 8), "pink"))
ANSWER: Answer = (AnswerStep("Water them.", PINK), AnswerStep("Wait."), AnswerStep("", PINK))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_documents(tmp_path, [document(), document("18", dataset_type="instructables")])
    for data_id in ("17", "18"):
        write_images(tmp_path, data_id)
    return tmp_path


def test_three_rounds_of_calls_for_a_continuation(folder: Path) -> None:
    benchmark = CoMM.open(folder, 3)
    item = benchmark.items[0]
    shown, hidden = benchmark.calls(item, ANSWER, {})
    assert [image.image.size for image in shown.images] == [(512, 256)] * 2 + [(8, 8)] * 2
    assert hidden.images == shown.images[:2]
    assert "(1)\nPlant row 1.\n[image 1]" in hidden.text
    assert shown.text.endswith("Answer:\n(3) Water them.\n[image 3]\n(4) Wait.\n(5) \n[image 4]")
    assert '{"3": "...", "4": "..."}' in hidden.text
    values: dict[str, Any] = {
        shown.name: benchmark.parse(shown.name, json.dumps(dict.fromkeys(SCORES[3], 9))),
        hidden.name: benchmark.parse(hidden.name, 'So: {"4": "Green leaves.", "3": "A can."}'),
    }
    assert set(benchmark.metrics(item, values).values()) == {None}
    *_, fidelity = benchmark.calls(item, ANSWER, values)
    assert fidelity.images == (PINK, PINK)
    assert "Description 1: A can.\n[image 1]\nDescription 2: Green leaves." in fidelity.text
    values[fidelity.name] = benchmark.parse(fidelity.name, '{"images": [6, 5], "overall": 5.5}')
    assert benchmark.metrics(item, values) == {**dict.fromkeys(SCORES[3], 9), "irs": 5.5}


def test_more_descriptions_than_images(folder: Path) -> None:
    benchmark = CoMM.open(folder, 4)
    *_, call = benchmark.calls(benchmark.items[0], ANSWER[:1], {"descriptions": ["A.", "B."]})
    assert call.text.endswith("Description 2: B.\n(image missing)")


def test_an_answer_without_images_is_asked_about_in_one_round(folder: Path) -> None:
    benchmark = CoMM.open(folder, 4)
    calls = benchmark.calls(benchmark.items[0], ANSWER[1:2], {})
    assert [call.name for call in calls] == ["document", "fidelity"]
    assert "(no images)" in calls[1].text
    assert "(empty)" in benchmark.calls(benchmark.items[0], (), {})[0].text


def test_texts_of_given_images(folder: Path) -> None:
    benchmark = CoMM.open(folder, 1)
    (call,) = benchmark.calls(benchmark.items[0], (AnswerStep("One."), AnswerStep("Two.")), {})
    assert call.text.endswith("(1) One.\n[image 1]\n(2) Two.\n[image 2]")
    value = benchmark.parse(call.name, '{"completeness": "NA", "text_fidelity": 8}')
    metrics = benchmark.metrics(benchmark.items[0], {call.name: value})
    assert metrics == {"completeness": 0, "text_fidelity": 8}
    assert benchmark.headline == "text_fidelity"


def test_images_of_given_texts(folder: Path) -> None:
    benchmark = CoMM.open(folder, 2)
    call = benchmark.calls(benchmark.items[0], (AnswerStep("?", PINK),) * 6, {})[0]
    assert "(1) Plant row 1.\n[image 1]" in call.text
    assert (len(call.images), "?" in call.text.split("Answer:")[1]) == (4, False)
    assert "completeness" not in call.text


def test_a_judge_is_shown_ten_images(folder: Path) -> None:
    steps = tuple(AnswerStep(f"Step {n}.", PINK) for n in range(12))
    for task, last in ((3, 7), (4, 9)):
        benchmark = CoMM.open(folder, task)  # type: ignore[arg-type]
        call = benchmark.calls(benchmark.items[0], steps, {})[0]
        assert len(call.images) == 10
        assert call.text.endswith(f"Step {last}.\n[image 10]")


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("document", json.dumps(dict.fromkeys(SCORES[2], 9))),  # without completeness
        ("document", json.dumps({**dict.fromkeys(SCORES[3], 9), "style": 11})),
        ("document", json.dumps({**dict.fromkeys(SCORES[3], 9), "style": "9"})),
        ("document", json.dumps({**dict.fromkeys(SCORES[3], 9), "style": True})),
        ("document", json.dumps(dict.fromkeys(SCORES[3], 9)) * 2),
        ("descriptions", '{"3": "A can.", "5": "Leaves."}'),
        ("descriptions", '{"3": ""}'),
        ("fidelity", '{"images": [5]}'),
        ("fidelity", "5"),
    ],
)
def test_answers_that_would_have_to_be_guessed(folder: Path, call: str, answer: str) -> None:
    assert CoMM.open(folder, 3).parse(call, answer) is None


def test_means_of_all_items_and_of_groups(folder: Path) -> None:
    benchmark = CoMM.open(folder, 1)
    items = [
        ItemMetrics("17_task1", "wikihow", {"completeness": 4.0, "text_fidelity": 5.0}),
        ItemMetrics("18_task1", "instructables", {"completeness": None, "text_fidelity": None}),
        ItemMetrics("17_task1", "wikihow", {"completeness": 8.0, "text_fidelity": 5.0}),
    ]
    assert benchmark.aggregate(items) == {
        "completeness": 6,
        "text_fidelity": 5,
        "wikihow/completeness": 6,
        "wikihow/text_fidelity": 5,
        "instructables/completeness": None,
        "instructables/text_fidelity": None,
    }


def test_answers_are_written_as_the_scorer_reads_them(tmp_path: Path, folder: Path) -> None:
    benchmark = CoMM.open(folder, 3)
    path = benchmark.write_answers(tmp_path / "out", "ours", [("17_task3", ANSWER)])
    content = json.loads((path / "17_task3" / "results.json").read_text())
    assert content["model_input"].count("<IMAGE>") == 2
    assert content["model_output"] == "(3) Water them. <IMAGE> (4) Wait. (5) <IMAGE>"
    assert content["input_image_list"] == ["input_1.png", "input_2.png"]
    assert content["output_gt_image_list"] == ["output_gt_3.png", "output_gt_4.png"]
    assert content["prediction_image_list"] == ["predict_3.png", "predict_5.png"]
    assert sorted(file.name for file in (path / "17_task3" / "origin").iterdir()) == [
        "input_1.png",
        "input_2.png",
        "output_gt_3.png",
        "output_gt_4.png",
    ]
    assert list(benchmark.read_answers(path)) == [("17_task3", ANSWER)]


def test_numbers_within_a_text_are_no_steps(tmp_path: Path, folder: Path) -> None:
    benchmark = CoMM.open(folder, 4)
    answer = (AnswerStep("Take (2) cups."), AnswerStep("Mix (9)"))
    path = benchmark.write_answers(tmp_path, "ours", [("17_task4", answer)])
    ((_, again),) = benchmark.read_answers(path)
    assert [step.text for step in again] == ["Take 2) cups.", "Mix 9)"]


def test_answers_of_others(tmp_path: Path, folder: Path) -> None:
    theirs = tmp_path / "theirs" / "17_task4"
    theirs.mkdir(parents=True)
    for name in "ab":
        (theirs / f"{name}.png").write_bytes(PINK.data)
    output = "Sure! (1) Use (5) cups. <IMAGE> <IMAGE> (2) Mix. <IMAGE> (3)"
    content = {"model_output": output, "prediction_image_list": ["a.png", "b.png"]}
    (theirs / "results.json").write_text(json.dumps(content))
    ((_, answer),) = CoMM.open(folder, 4).read_answers(tmp_path / "theirs")
    assert answer == (
        AnswerStep("Use (5) cups.", PINK),
        AnswerStep("", PINK),
        AnswerStep("Mix."),
        AnswerStep(""),
    )


def test_wrong_answers_are_one_line(tmp_path: Path, folder: Path) -> None:
    benchmark = CoMM.open(folder, 4)
    with pytest.raises(FoundryError, match="is not a folder; give a system's answers"):
        list(benchmark.read_answers(tmp_path / "none"))
    path = benchmark.write_answers(tmp_path, "ours", [("17_task4", ANSWER)])
    (path / "17_task4" / "predict_1.png").unlink()
    with pytest.raises(FoundryError, match=r"predict_1\.png: picture of item 17_task4 cannot"):
        list(benchmark.read_answers(path))
    (path / "17_task4" / "results.json").write_text("{}")
    with pytest.raises(FoundryError, match=r"results\.json: model_output"):
        list(benchmark.read_answers(path))
    (path / "17_task4").rename(path / "99_task4")
    with pytest.raises(FoundryError, match="answer 99_task4 is to no item of comm-task4"):
        list(benchmark.read_answers(path))


@pytest.mark.parametrize(("task", "steps"), [(1, 5), (2, 5), (3, 3), (4, 5)])
def test_real_answers(task: int, steps: int) -> None:
    if REAL not in os.environ:
        pytest.skip(f"{REAL} names no copy of CoMM's repository")
    file = Path(os.environ[REAL]) / f"eval/example/data_id_task{task}/results.json"
    content = json.loads(file.read_text())
    assert len(split_steps(content["model_output"])) == steps
    assert content["model_output"].count(MARKER) == len(content["prediction_image_list"])
