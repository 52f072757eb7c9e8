"""CoMM as the framework runs it: rounds of calls, scores, numbers, folders of answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from assets.benchmarks.benchmark import Answer, AnswerStep, ItemMetrics
from assets.benchmarks.comm import SCORES, CoMM, Task
from schemas.errors import FoundryError
from tests.assets.benchmarks.official_files import (
    BLUE,
    comm_document,
    error_of_one_line,
    real_files,
    write_comm,
)

ANSWER: Answer = (AnswerStep("Water them.", BLUE), AnswerStep("Wait."), AnswerStep("", BLUE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("comm")
    write_comm(path, [comm_document(), comm_document("18", dataset_type="instructables")])
    return path


def test_what_is_given_in_each_task(folder: Path) -> None:
    given: dict[Task, tuple[list[str], int]] = {
        1: ([f"({n}) <image>" for n in (1, 2, 3, 4)], 4),
        2: ([f"({n}) Plant row {n}." for n in (1, 2, 3, 4)], 0),
        3: ([f"({n}) Plant row {n}. <image>" for n in (1, 2)], 2),
        4: ([], 0),
    }
    for task, (lines, images) in given.items():
        item = CoMM(folder, task).items[0]
        assert "about Indoor Gardens" in item.text
        assert [line for line in item.text.split("\n") if line.startswith("(")] == lines
        assert len(item.image_files) == item.text.count("<image>") == images
        assert (item.item_id, item.group) == (f"17_task{task}", "wikihow")


def test_documents_that_cannot_be_continued_are_left_out(tmp_path: Path) -> None:
    text_only = [[{"type": "text", "content": "Plant."}]] * 4
    documents = [comm_document("1", 1), comm_document("2", 20)]
    documents += [comm_document("3", step_info=text_only), comm_document("4", 3)]
    (item,) = CoMM(write_comm(tmp_path, documents), 3).items
    assert (item.item_id, len(item.image_files)) == ("4_task3", 1)


def test_a_title_may_be_in_the_summary_and_tags_are_no_images(tmp_path: Path) -> None:
    tagged = [{"type": "text", "content": "A <image> of it"}]
    for summary, topic in (([], "about 17,"), (tagged, "about A [image] of it,")):
        write_comm(tmp_path, [comm_document(title=None, summary_info=summary)])
        assert topic in CoMM(tmp_path, 4).items[0].text


def test_images_known_only_by_their_url_are_named(tmp_path: Path) -> None:
    write_comm(tmp_path, [comm_document()], images=False)
    missing = r"item 17_task3: its picture 17_1.png is missing \(and 1 others\); download"
    with pytest.raises(FoundryError, match=missing):
        CoMM(tmp_path, 3)
    url = [{"type": "image", "url": "http://x/a.png"}, {"type": "text", "content": "a"}]
    write_comm(tmp_path, [comm_document(step_info=[url])], images=False)
    with pytest.raises(FoundryError, match=r"its picture http://x/a\.png is missing; download"):
        CoMM(tmp_path, 1)
    assert len(CoMM(tmp_path, 4).items) == 1


def test_wrong_documents_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(FoundryError, match="has 0 files of CoMM's documents"):
        CoMM(tmp_path, 4)
    cases: list[tuple[list[Any], str]] = [
        ([comm_document(step_info=[])], "item 1: step_info"),
        ([comm_document("a/b")], "item 1: data_id"),
        ([comm_document(step_info=[[{"type": "video"}]])], "item 1: step_info.0.0.type"),
    ]
    for documents, problem in cases:
        with error_of_one_line(problem):
            CoMM(write_comm(tmp_path, documents, images=False), 4)
    for name in ("train.json", "val.json"):
        write_comm(tmp_path, [], images=False).rename(tmp_path / name)
    with pytest.raises(FoundryError, match="has 2 files"):
        CoMM(tmp_path, 4)


def test_three_rounds_of_calls_for_a_continuation(folder: Path) -> None:
    benchmark = CoMM(folder, 3)
    item = benchmark.items[0]
    shown, hidden = benchmark.calls(item, ANSWER, {})
    assert [image.image.size for image in shown.images] == [(512, 256)] * 2 + [(8, 8)] * 2
    assert hidden.images == shown.images[:2]
    assert "(1)\nPlant row 1.\n[image 1]" in hidden.text
    assert shown.text.endswith("Answer:\n(3) Water them.\n[image 3]\n(4) Wait.\n(5) \n[image 4]")
    assert '{"3": "...", "4": "..."}' in hidden.text
    values: dict[str, Any] = {
        shown.name: shown.read(json.dumps(dict.fromkeys(SCORES[3], 9))),
        hidden.name: hidden.read('So: {"4": "Green leaves.", "3": "A can."}'),
    }
    assert set(benchmark.metrics(item, values).values()) == {None}
    *_, fidelity = benchmark.calls(item, ANSWER, values)
    assert fidelity.images == (BLUE, BLUE)
    assert "Description 1: A can.\n[image 1]\nDescription 2: Green leaves." in fidelity.text
    values[fidelity.name] = fidelity.read('{"images": [6, 5], "overall": 5.5}')
    assert benchmark.metrics(item, values) == {**dict.fromkeys(SCORES[3], 9), "irs": 5.5}


def test_an_answer_with_too_few_images_and_one_without_any(folder: Path) -> None:
    benchmark = CoMM(folder, 4)
    *_, call = benchmark.calls(benchmark.items[0], ANSWER[:1], {"descriptions": ["A.", "B."]})
    assert call.text.endswith("Description 2: B.\n(image missing)")
    calls = benchmark.calls(benchmark.items[0], ANSWER[1:2], {})
    assert [call.name for call in calls] == ["document", "fidelity"], "in one round"
    assert "(no images)" in calls[1].text
    assert "(empty)" in benchmark.calls(benchmark.items[0], (), {})[0].text


def test_texts_of_given_images(folder: Path) -> None:
    benchmark = CoMM(folder, 1)
    (call,) = benchmark.calls(benchmark.items[0], (AnswerStep("One."), AnswerStep("Two.")), {})
    assert call.text.endswith("(1) One.\n[image 1]\n(2) Two.\n[image 2]")
    value = call.read('{"completeness": "NA", "text_fidelity": 8}')
    metrics = benchmark.metrics(benchmark.items[0], {call.name: value})
    assert metrics == {"completeness": 0, "text_fidelity": 8}
    assert benchmark.headline == "text_fidelity"


def test_images_of_given_texts(folder: Path) -> None:
    benchmark = CoMM(folder, 2)
    call = benchmark.calls(benchmark.items[0], (AnswerStep("?", BLUE),) * 6, {})[0]
    assert "(1) Plant row 1.\n[image 1]" in call.text
    assert (len(call.images), "?" in call.text.split("Answer:")[1]) == (4, False)
    assert "completeness" not in call.text


def test_a_judge_is_shown_ten_images(folder: Path) -> None:
    steps = tuple(AnswerStep(f"Step {n}.", BLUE) for n in range(12))
    for task, last in ((3, 7), (4, 9)):
        benchmark = CoMM(folder, task)  # type: ignore[arg-type]
        call = benchmark.calls(benchmark.items[0], steps, {})[0]
        assert len(call.images) == 10
        assert call.text.endswith(f"Step {last}.\n[image 10]")


def test_answers_that_would_have_to_be_guessed(folder: Path) -> None:
    benchmark, scores = CoMM(folder, 3), dict.fromkeys(SCORES[3], 9)
    calls = benchmark.calls(benchmark.items[0], ANSWER, {"descriptions": ["A can."]})
    reads = {call.name: call.read for call in calls}
    for call, answer in (
        ("document", json.dumps(dict.fromkeys(SCORES[2], 9))),  # without completeness
        ("document", json.dumps({**scores, "style": 11})),
        ("document", json.dumps({**scores, "style": "9"})),
        ("document", json.dumps({**scores, "style": True})),
        ("document", json.dumps(scores) * 2),
        ("descriptions", '{"3": "A can.", "5": "Leaves."}'),
        ("descriptions", '{"3": ""}'),
        ("fidelity", '{"images": [5]}'),
        ("fidelity", "5"),
    ):
        assert reads[call](answer) is None, answer


def test_means_of_all_items_and_of_groups(folder: Path) -> None:
    benchmark = CoMM(folder, 1)
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
    benchmark = CoMM(folder, 3)
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
    benchmark = CoMM(folder, 4)
    answer = (AnswerStep("Take (2) cups."), AnswerStep("Mix (9)"))
    path = benchmark.write_answers(tmp_path, "ours", [("17_task4", answer)])
    ((_, again),) = benchmark.read_answers(path)
    assert [step.text for step in again] == ["Take 2) cups.", "Mix 9)"]


def test_answers_of_others(tmp_path: Path, folder: Path) -> None:
    theirs = tmp_path / "theirs" / "17_task4"
    theirs.mkdir(parents=True)
    for name in "ab":
        (theirs / f"{name}.png").write_bytes(BLUE.data)
    output = "Sure! (1) Use (5) cups. <IMAGE> <IMAGE> (2) Mix. <IMAGE> (3)"
    content = {"model_output": output, "prediction_image_list": ["a.png", "b.png"]}
    (theirs / "results.json").write_text(json.dumps(content))
    ((_, answer),) = CoMM(folder, 4).read_answers(tmp_path / "theirs")
    assert answer == (
        AnswerStep("Use (5) cups.", BLUE),
        AnswerStep("", BLUE),
        AnswerStep("Mix."),
        AnswerStep(""),
    )


def test_wrong_answers_are_one_line(tmp_path: Path, folder: Path) -> None:
    benchmark = CoMM(folder, 4)
    path = benchmark.write_answers(tmp_path, "ours", [("17_task4", ANSWER)])
    other = (path / "17_task4").rename(path / "99_task4")
    with pytest.raises(FoundryError, match="answer 99_task4 is to no item of comm-task4"):
        list(benchmark.read_answers(path))
    (other / "results.json").write_text("{}")
    with pytest.raises(FoundryError, match=r"results\.json: answer model_output"):
        list(benchmark.read_answers(path))


def test_real_answers() -> None:
    folder = real_files("INTERLEAVE_COMM") / "eval/example"
    steps: dict[Task, int] = {1: 5, 2: 5, 3: 3, 4: 5}
    for task, count in steps.items():
        content = json.loads((folder / f"data_id_task{task}/results.json").read_text())
        answers = dict(CoMM(folder.parents[1], task).answers_in(folder))
        images = sum(step.image is not None for step in answers[f"data_id_task{task}"])
        assert len(answers[f"data_id_task{task}"]) >= count
        assert images == len(content["prediction_image_list"])
