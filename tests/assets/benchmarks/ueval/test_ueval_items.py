"""Official rows in all their forms, and one line for what is wrong."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets.benchmarks.ueval.items import TASKS, load
from schemas.errors import FoundryError
from tests.assets.benchmarks.ueval.ueval_files import row, write_rows

REAL = "INTERLEAVE_UEVAL"


def test_rows_of_every_kind_of_file_are_the_same(tmp_path: Path) -> None:
    rows = [row("1"), row("2", "space", image_rubrics=None)]
    lines = load(write_rows(tmp_path, rows))
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "hub" / "data").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "hub/data/test-00000-of-00001.parquet")
    assert lines == load(tmp_path / "rows.json") == load(tmp_path / "hub")
    assert [item.is_open for item in lines] == [True, False]
    assert [len(item.image_rubrics) for item in lines] == [1, 0]


def test_rows_of_the_older_data_set(tmp_path: Path) -> None:
    older = row(7, task_type=" Tech ", question_type="open")  # type: ignore[arg-type]
    del older["task"]
    older["text_rubrics"] = [{"criterion": "Names the paper.", "tags": ["fact"]}]
    older["image_rubrics"] = [{"criterion": "Shows it.", "tags": [], "type": "image"}]
    (item,) = load(write_rows(tmp_path, [older]))
    assert (item.id, item.task) == ("7", "tech")
    assert item.text_rubrics + item.image_rubrics == ("Names the paper.", "Shows it.")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "has no items of UEval"),
        ([row(), row()], "item 1 is there twice"),
        ([row(), row("2", "dance")], "row 2: task"),
        ([row(prompt="")], "row 1: prompt"),
        ([row(text_rubrics=[{"tags": []}])], "row 1: text_rubrics.0"),
    ],
)
def test_wrong_rows_are_one_line(tmp_path: Path, rows: list[Any], problem: str) -> None:
    with pytest.raises(FoundryError, match=problem) as info:
        load(write_rows(tmp_path, rows))
    assert "\n" not in str(info.value)


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(FoundryError, match=r"has no \.parquet, \.jsonl or \.json file"):
        load(tmp_path)
    (tmp_path / "test.parquet").write_bytes(b"PAR1")
    with pytest.raises(FoundryError, match="cannot be read"):
        load(tmp_path)


def test_real_items() -> None:
    if REAL not in os.environ:
        pytest.skip(f"{REAL} names no copy of UEval's data set")
    items = load(Path(os.environ[REAL]))
    assert (len(items), {item.task for item in items}) == (1000, set(TASKS))
    assert sum(len(item.text_rubrics) + len(item.image_rubrics) for item in items) == 10417
