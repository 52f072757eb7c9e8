"""Partitions written before a column was renamed (`door`, now `channel`) are still read."""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from schemas import SchemaMismatchError
from schemas.generations import GENERATIONS, GenerationRow
from warehouse import Home
from warehouse.sql import query
from warehouse.views import refresh_views

OLD, NEW = "_requests-old", "_requests-new"
SQL = "SELECT generation_id, channel FROM generations ORDER BY ALL"


def generation(name: str, channel: str) -> GenerationRow:
    row = dict.fromkeys(GenerationRow.model_fields) | {
        "generation_id": name,
        "shard": OLD,
        "channel": channel,
        "text": "a cat",
        "input_images": [],
        "prompt_id": "p",
        "trajectory_id": "t",
        "status": "complete",
        "t_max": 3,
        "on_exhausted": "last",
        "conditioning": "last",
        "candidates": 1,
        "seed": 1,
        "steps": 1,
        "attempts": 1,
        "wasted_draws": 0,
        "images": [],
        "seconds": 1.0,
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return GenerationRow.model_validate(row)


def write_old(home: Home, rows: list[GenerationRow], version: int = 1) -> Path:
    """A partition as the version before wrote it."""
    table = GENERATIONS.to_arrow(rows)
    table = table.rename_columns({"channel": "door"}).replace_schema_metadata(
        {
            "interleave.table": "generations",
            "interleave.version": str(version),
            "interleave.content_hash": "hash of then",
        }
    )
    path = home.local / "lake" / "generations" / OLD / "part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table, path)
    return path


def test_the_lake_reads_old_partitions_under_the_new_name(home):
    rows = [generation("a", "asset"), generation("b", "service")]
    write_old(home, rows)
    assert home.lake.read(GENERATIONS, [OLD]).equals(GENERATIONS.to_arrow(rows))
    by_service = pc.field("channel") == "service"
    found = home.lake.read(GENERATIONS, [OLD], ["generation_id"], by_service)
    assert found.to_pylist() == [{"generation_id": "b"}]
    assert home.lake.content_hash(GENERATIONS, OLD) == "hash of then"


def test_an_old_partition_that_is_rewritten_has_the_new_name(home):
    path = write_old(home, [generation("a", "asset")])
    assert home.lake.write(GENERATIONS, home.lake.read(GENERATIONS, [OLD]), OLD).changed
    assert "channel" in pq.read_schema(path).names and "door" not in pq.read_schema(path).names


def test_views_show_old_and_new_partitions(home):
    path = write_old(home, [generation("a", "asset")])
    refresh_views(home)

    def rows() -> list[tuple[str, str]]:
        with duckdb.connect(home.warehouse, read_only=True) as connection:
            shown = connection.sql(SQL).fetchall()
        assert [tuple(row) for row in query(SQL, home).values] == shown
        return shown

    assert rows() == [("a", "asset")]
    home.lake.write(GENERATIONS, [generation("b", "command")], NEW)
    assert rows() == [("a", "asset"), ("b", "command")]
    path.unlink()
    assert rows() == [("b", "command")]


def test_older_versions_are_named_with_a_remedy(home):
    path = write_old(home, [generation("a", "asset")], version=0)
    with pytest.raises(SchemaMismatchError, match=r"has schema version 0.*version 2;") as error:
        home.lake.read(GENERATIONS, [OLD])
    assert "generations" in str(error.value) and f"delete {path}" in str(error.value)
