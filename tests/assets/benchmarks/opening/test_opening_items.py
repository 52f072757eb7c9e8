"""Official data files: what is read, and one line for what is wrong."""

import re
from pathlib import Path
from typing import Any

import pytest

from assets.benchmarks.opening.items import TASKS_PER_TOPIC, load, load_images
from schemas.errors import FoundryError
from tests.assets.benchmarks.opening.opening_files import record, write_records


def test_an_item_says_what_is_asked(benchmark_folder: Path) -> None:
    item = load(benchmark_folder)[0]
    assert (item.total_uid, item.task_id, item.expected_steps) == ("0301007", "0301", 3)
    assert item.request(tell_steps=False) == "Go on. A fox woke up. <image>\nIt was hungry."
    assert item.request().endswith("Answer in about 3 steps, each a text with one image.")
    assert [image.image.size for image in load_images(benchmark_folder, item)] == [(40, 20)]


def test_splits_and_repository_folders_are_found(benchmark_folder: Path) -> None:
    write_records(benchmark_folder, [record(9)], "dev")
    benchmark_folder.rename(benchmark_folder.with_name("OpenING-benchmark"))
    assert [item.total_uid for item in load(benchmark_folder.parent, "dev")] == ["0301009"]


def test_there_are_56_tasks_of_23_topics() -> None:
    assert (len(TASKS_PER_TOPIC), sum(TASKS_PER_TOPIC.values())) == (23, 56)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"subtask_id": "9"}, "no task 9 of a topic 3"),
        ({"total_uid": "0301001"}, "total_uid 0301001 does not follow"),
        ({"conversations": [{"input": []}, {"output": []}]}, "conversations.0.input"),
        ({"meta_task_id": "three"}, "meta_task_id"),
        ({"rubric": "?"}, "rubric"),
    ],
)
def test_an_unknown_value_is_one_line(tmp_path: Path, changes: Any, problem: str) -> None:
    path = write_records(tmp_path, [record(7), record(8, **changes)])
    with pytest.raises(FoundryError, match=f"^{path}: item in line 2: .*{problem}.*; copy") as info:
        load(tmp_path, require_images=False)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "has no items"),
        (b'{"total_uid": ', "item in line 1: .*JSON"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "test_data.jsonl").write_bytes(content)
    with pytest.raises(FoundryError, match=problem):
        load(tmp_path)


def test_a_missing_file_and_an_item_twice(tmp_path: Path) -> None:
    with pytest.raises(FoundryError, match=r"has no test_data.jsonl of OpenING; give the folder"):
        load(tmp_path)
    write_records(tmp_path, [record(7), record(7)])
    with pytest.raises(FoundryError, match="item 0301007 is there twice"):
        load(tmp_path, require_images=False)


def test_missing_and_damaged_pictures_are_named(benchmark_folder: Path) -> None:
    picture = benchmark_folder / "images/Stories/7-i-1.jpg"
    items = load(benchmark_folder)
    picture.write_bytes(picture.read_bytes()[:200])
    with pytest.raises(FoundryError, match=f"{re.escape(str(picture))}: .*0301007 is damaged"):
        load_images(benchmark_folder, items[0])
    picture.unlink()
    with pytest.raises(FoundryError, match=r"item 0301007: its picture .*7-i-1.jpg is missing \("):
        load(benchmark_folder)


def test_real_items(real_folder: Path) -> None:
    items = load(real_folder, require_images=False)
    assert len(items) == 2160
    assert len({item.task_id for item in items}) == 56
    assert sum(item.expected_steps for item in items) == 5469
