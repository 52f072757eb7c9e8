"""Rows for verl, in the order of training."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas import FoundryError
from training.grpo.recipe import GrpoSettings
from training.grpo.verl_files import total_steps, write_rows


def export(folder: Path, rows: int, images: list[dict]) -> Path:
    table = [{"extra_info": {"index": i}, "images": images} for i in range(rows)]
    pq.write_table(pa.Table.from_pylist(table), folder / "critic_rl.parquet")
    return folder


def write_and_read(folder: Path, settings: GrpoSettings, name: str = "rows.parquet") -> list[dict]:
    write_rows(folder, folder / name, settings)
    return pq.read_table(folder / name).to_pylist()


def numbers(rows: list[dict]) -> list[int]:
    return [row["extra_info"]["index"] for row in rows]


def test_no_row_is_used_twice(tmp_path):
    export(tmp_path, 10, [{"bytes": b"a"}])
    order = numbers(write_and_read(tmp_path, GrpoSettings(batch=4, mini_batch=2, max_steps=6)))
    assert len(order) == len(set(order)) == 8


def test_the_order_follows_from_the_seed(tmp_path):
    export(tmp_path, 30, [{"bytes": b"a"}])
    settings = {"batch": 4, "mini_batch": 2, "max_steps": 5}
    first, again = (write_and_read(tmp_path, GrpoSettings(**settings), name) for name in ("a", "b"))
    other = write_and_read(tmp_path, GrpoSettings(**settings, seed=1), "c")
    assert numbers(first) == numbers(again) != numbers(other)


def test_an_epoch_has_complete_batches_only(tmp_path):
    export(tmp_path, 10, [{"bytes": b"a"}])
    settings = GrpoSettings(batch=4, mini_batch=2, max_steps=None)
    assert total_steps(tmp_path, settings) == 2
    assert len(write_and_read(tmp_path, settings)) == 8


def test_images_carry_their_largest_size(tmp_path):
    export(tmp_path, 4, [{"bytes": b"a"}, {"bytes": b"b"}])
    settings = GrpoSettings(batch=4, mini_batch=2, max_steps=1, image_max_pixels=2048)
    row = write_and_read(tmp_path, settings)[0]
    assert row["images"] == [
        {"bytes": b"a", "max_pixels": 2048},
        {"bytes": b"b", "max_pixels": 2048},
    ]


def test_paths_become_absolute(tmp_path):
    export(tmp_path, 4, [{"image": "images/a.png"}])
    row = write_and_read(tmp_path, GrpoSettings(batch=4, mini_batch=2, max_steps=1))[0]
    assert row["images"][0]["image"] == str(tmp_path / "images/a.png")


def test_missing_exports_and_rows_are_named(tmp_path):
    with pytest.raises(FoundryError, match="materialize `exports`"):
        total_steps(tmp_path, GrpoSettings())
    export(tmp_path, 3, [{"bytes": b"a"}])
    with pytest.raises(FoundryError, match="3 rows, fewer than a batch of 16"):
        total_steps(tmp_path, GrpoSettings())
