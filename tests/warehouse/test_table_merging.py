"""Merged table files: what readers and writers see before, during and after; real kills."""

import pyarrow.compute as pc
import pytest

from schemas.trajectories import ATTEMPTS, MODEL_CALLS, SCORES
from tests.warehouse.conftest import attempt
from warehouse import Home
from warehouse.lake import Lake
from warehouse.partition_index import PartitionIndex
from warehouse.table_merging import merge_tables
from warehouse.views import connect

SHARDS = [f"sketchbook-{number:04d}" for number in range(5)]
ROWS = "SELECT shard, count(*), sum(seed) FROM attempts GROUP BY ALL ORDER BY ALL"


@pytest.fixture
def filled(any_home) -> Home:
    fill(any_home)
    return any_home


def fill(home: Home) -> None:
    for count, shard in enumerate(SHARDS, 1):
        rows = [attempt(number, shard=shard, seed=count) for number in range(count)]
        home.lake.write(ATTEMPTS, rows, shard)
        home.lake.write(SCORES, [], shard)
        for asset in ("plans", "trajectories", "scores"):
            home.lake.write(MODEL_CALLS, [], f"{asset}-{shard}")


def facts(home: Home) -> object:
    """What all readers say of the attempts."""
    lake = home.lake
    names = lake.partitions(ATTEMPTS)
    return (
        names,
        lake.content_hashes(ATTEMPTS),
        lake.rows(ATTEMPTS),
        [lake.rows(ATTEMPTS, name) for name in names],
        [lake.content_hash(ATTEMPTS, name) for name in names],
        [lake.exists(ATTEMPTS, name) for name in SHARDS],
        lake.read(ATTEMPTS).to_pylist(),
        lake.read(ATTEMPTS, SHARDS, ["seed"], pc.field("accepted")).to_pylist(),
        [row for part in lake.stream(ATTEMPTS, partition=SHARDS[3]) for row in part.to_pylist()],
        Lake(lake.storage, PartitionIndex(None)).content_hashes(ATTEMPTS),
        connect(home).sql(ROWS).fetchall(),
    )


def own(home: Home) -> list[str]:
    return [name for name in home.lake.own_partitions(ATTEMPTS) if name in SHARDS]


def test_readers_see_the_same_before_and_after(filled):
    before, reader = facts(filled), Home(filled.root)
    assert facts(reader) == before
    planned = list(merge_tables(filled, dry_run=True))
    assert own(filled) == SHARDS
    done = list(merge_tables(filled))
    assert done == planned
    assert [(each.table, each.name, each.partitions) for each in done] == [
        ("attempts", "sketchbook-00.parquet", 5),
        ("scores", "sketchbook-00.parquet", 5),
        *[
            ("model_calls", f"{a}-sketchbook-00.parquet", 5)
            for a in ("plans", "scores", "trajectories")
        ],
    ]
    assert own(filled) == [] and len(filled.lake.merged_files(ATTEMPTS)) == 1
    for home in (filled, reader, Home(filled.root)):
        assert facts(home) == before
    assert list(merge_tables(filled)) == []
