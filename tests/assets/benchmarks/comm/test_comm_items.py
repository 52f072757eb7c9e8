"""CoMM's documents as items of the four tasks, and one line for what is wrong."""

from pathlib import Path
from typing import Any

import pytest

from assets.benchmarks.comm.items import Task, load
from assets.benchmarks.comm.scores import means, read_results
from schemas.errors import FoundryError
from tests.assets.benchmarks.comm.comm_files import (
    document,
    official_results,
    official_scores,
    write_documents,
    write_images,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_documents(tmp_path, [document()])
    write_images(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("task", "lines", "input_images", "reference_images"),
    [
        (1, ["(1) <image>", "(2) <image>", "(3) <image>", "(4) <image>"], 4, 0),
        (2, [f"({n}) Plant row {n}." for n in range(1, 5)], 0, 4),
        (3, [f"({n}) Plant row {n}. <image>" for n in (1, 2)], 2, 2),
        (4, [], 0, 4),
    ],
)
def test_what_is_given_in_each_task(
    folder: Path, task: Task, lines: list[str], input_images: int, reference_images: int
) -> None:
    (item,) = load(folder, task)
    text = item.text("<image>")
    assert "about Indoor Gardens" in text
    assert [line for line in text.split("\n") if line.startswith("(")] == lines
    assert len(item.input_images) == text.count("<image>") == input_images
    assert len(item.reference_images) == reference_images
    assert (item.item_id, item.group) == (f"17_task{task}", "wikihow")


def test_documents_saved_by_torch(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    before = load(folder, 3)
    torch.save([document()], folder / "test.pt")
    (folder / "test.json").unlink()
    assert load(folder, 3) == before


def test_documents_that_cannot_be_continued_are_left_out(tmp_path: Path) -> None:
    text_only = [[{"type": "text", "content": "Plant."}]] * 4
    documents = [document("1", 1), document("2", 20), document("3", step_info=text_only)]
    path = write_documents(tmp_path, [*documents, document("4", 3)])
    write_images(tmp_path, "4", 3)
    (item,) = load(path, 3)
    assert (item.item_id, item.given) == ("4_task3", 1)


def test_a_title_may_be_in_the_summary_and_tags_are_no_images(tmp_path: Path) -> None:
    write_documents(tmp_path, [document(title=None, summary_info=[])])
    assert "about 17," in load(tmp_path, 4)[0].text("<image>")
    content = [{"type": "text", "content": "A <image> of it"}]
    write_documents(tmp_path, [document(title=None, summary_info=content)])
    assert "about A [image] of it," in load(tmp_path, 4)[0].text("<image>")


def test_images_known_only_by_their_url_are_named(tmp_path: Path) -> None:
    write_documents(tmp_path, [document()])
    with pytest.raises(FoundryError, match=r"item 17_task3: its image 17_1.png is not there \(and"):
        load(tmp_path, 3)
    url = [{"type": "image", "url": "http://x/a.png"}, {"type": "text", "content": "a"}]
    write_documents(tmp_path, [document(step_info=[url])])
    with pytest.raises(FoundryError, match=r"its image http://x/a\.png is not there; download"):
        load(tmp_path, 1)
    assert len(load(tmp_path, 4)) == 1


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        ([], "has no documents for task 4"),
        ([document(), document()], "item 17_task4 is there twice"),
        ([document(step_info=[])], "document 1: step_info"),
        ([document("a/b")], "document 1: data_id"),
        ([document(step_info=[[{"type": "video"}]])], "document 1: step_info.0.0.type"),
        ({"a": 1}, "is not a list"),
    ],
)
def test_wrong_documents_are_one_line(tmp_path: Path, documents: Any, problem: str) -> None:
    with pytest.raises(FoundryError, match=problem) as info:
        load(write_documents(tmp_path, documents), 4)
    assert "\n" not in str(info.value)


def test_the_split_must_be_clear(tmp_path: Path) -> None:
    with pytest.raises(FoundryError, match="has 0 files of CoMM's documents"):
        load(tmp_path, 4)
    for name in ("train.json", "val.json"):
        write_documents(tmp_path, [document()]).rename(tmp_path / name)
    with pytest.raises(FoundryError, match="has 2 files"):
        load(tmp_path, 4)


def test_official_results_by_hand(tmp_path: Path) -> None:
    official_results(tmp_path, "1_task4", official_scores(8))
    official_results(tmp_path, "2_task4", official_scores("NA", completeness={"overall_score": 3}))
    official_results(tmp_path, "3_task4", official_scores(10, remarks={"Score": 1}))
    official_results(tmp_path, "4_task4", ["no", "object"])
    official_results(tmp_path, "5_task4", official_scores(10, coherence_score=9))
    official_results(tmp_path, "6_task4", {"Image_Quality": {"Score": 2}})
    official_results(tmp_path, "7_task1", {"Completeness": {"Score": 5}})
    items = read_results(tmp_path, 4)
    assert [len(item.metrics) for item in items] == [7, 7, 0, 0, 0, 1]
    found = means(items)
    assert found["style_consistency"] == 4
    assert found["completeness"] == 5.5
    assert found["Image_Quality"] == pytest.approx(10 / 3)
    assert means(read_results(tmp_path, 1)) == {"Completeness": 5}


def test_wrong_official_results_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(FoundryError, match="is not a folder"):
        read_results(tmp_path / "none", 4)
    official_results(tmp_path, "1_task4", {"completeness": {"Score": "8"}})
    with pytest.raises(FoundryError, match="completeness is '8', no number"):
        read_results(tmp_path, 4)
    (tmp_path / "1_task4" / "evaluation_results.json").unlink()
    with pytest.raises(FoundryError, match=r"1_task4: has no evaluation_results\.json"):
        read_results(tmp_path, 4)
