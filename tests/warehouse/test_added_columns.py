"""Partitions written before a column was added (`generator` of rollouts) are read, with null."""

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from schemas import SchemaMismatchError
from schemas.training import ROLLOUTS, RolloutRow
from warehouse import Home
from warehouse.sql import query
from warehouse.views import refresh_views

SQL = "SELECT rollout_id, coalesce(generator, 'nobody') AS generator FROM rollouts ORDER BY 1"


def rollout(name: str, generator: str | None = None) -> RolloutRow:
    texts = dict.fromkeys(["run", "row_id", "response"], "")
    unknown = dict.fromkeys(["verdict", "refined_prompt", "image", "accuracy", "step_reward"])
    numbers = {"step": 1, "format": 0, "reward": 0, "seconds": 1}
    return RolloutRow(
        **(texts | unknown | numbers),
        rollout_id=name,
        status="malformed",
        truth=True,
        error=None,
        generator=generator,
    )


def write_old(home: Home, rows: list[RolloutRow], version: int = 1) -> None:
    """A partition as the version before wrote it."""
    table = ROLLOUTS.to_arrow(rows).drop_columns(["generator"])
    metadata = {"interleave.version": str(version), "interleave.content_hash": "hash of then"}
    path = home.local / "lake" / "rollouts" / "old" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table.replace_schema_metadata(metadata), path)


def test_the_lake_reads_old_and_new_partitions(home):
    write_old(home, [rollout("a"), rollout("b")])
    home.lake.write(ROLLOUTS, [rollout("c", "pen/1")], "new")
    both = [rollout("c", "pen/1"), rollout("a"), rollout("b")]
    assert home.lake.read(ROLLOUTS).equals(ROLLOUTS.to_arrow(both))
    drawn = home.lake.read(ROLLOUTS, None, ["rollout_id"], pc.field("generator") == "pen/1")
    assert drawn.to_pylist() == [{"rollout_id": "c"}]
    assert home.lake.content_hash(ROLLOUTS, "old") == "hash of then"


def test_views_show_old_and_new_partitions(home):
    write_old(home, [rollout("a")])
    assert query(SQL, home).values.tolist() == [["a", "nobody"]]
    home.lake.write(ROLLOUTS, [rollout("b", "pen/1")], "new")
    refresh_views(home)
    assert query(SQL, home).values.tolist() == [["a", "nobody"], ["b", "pen/1"]]


def test_older_versions_are_named_with_a_remedy(home):
    write_old(home, [rollout("a")], version=0)
    with pytest.raises(SchemaMismatchError, match=r"has schema version 0.*version 2;"):
        home.lake.read(ROLLOUTS)
