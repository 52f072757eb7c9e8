"""Merged table files: what readers and writers see before, during and after; real kills."""

import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from schemas import FoundryError
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, SCORES
from tests.warehouse.conftest import WITHOUT_S3, attempt
from tests.warehouse.test_compaction import KILLS
from warehouse import Home, table_merging
from warehouse.lake import Lake
from warehouse.partition_index import PartitionIndex
from warehouse.sql import run_query
from warehouse.table_merging import merge_tables
from warehouse.verify import find_damage, table_checks
from warehouse.views import connect, refresh_views

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
        ("model_calls", "plans-sketchbook-00.parquet", 5),
        ("model_calls", "scores-sketchbook-00.parquet", 5),
        ("model_calls", "trajectories-sketchbook-00.parquet", 5),
    ]
    assert own(filled) == [] and len(filled.lake.merged_files(ATTEMPTS)) == 1
    for home in (filled, reader, Home(filled.root)):
        assert facts(home) == before
    assert list(merge_tables(filled)) == []


@WITHOUT_S3
def test_a_partition_is_replaced_and_deleted_after_a_merge(filled):
    list(merge_tables(filled))
    filled.lake.write(ATTEMPTS, [attempt(0, shard=SHARDS[0], seed=50)], SHARDS[0])
    filled.lake.delete(ATTEMPTS, SHARDS[1])
    expected = facts(filled)
    assert expected[0] == [SHARDS[0], *SHARDS[2:]]
    assert expected[-1][0] == (SHARDS[0], 1, 50)
    assert facts(Home(filled.root)) == expected
    assert filled.lake.content_hash(ATTEMPTS, SHARDS[1]) is None
    list(merge_tables(filled))
    assert own(filled) == [] and facts(filled) == facts(Home(filled.root)) == expected
    assert not list(filled.lake.storage.find("attempts", "part-deleted.parquet"))
    filled.lake.write(ATTEMPTS, [attempt(0, shard=SHARDS[1], seed=60)], SHARDS[1])
    assert filled.lake.read(ATTEMPTS, [SHARDS[1]])["seed"].to_pylist() == [60]
    list(merge_tables(filled))
    assert filled.lake.read(ATTEMPTS, [SHARDS[1]])["seed"].to_pylist() == [60]


@WITHOUT_S3
def test_a_writer_wins_who_replaces_or_deletes_a_partition_meanwhile(filled, monkeypatch):
    lake, write = Home(filled.root).lake, table_merging.write_merged

    def write_and_be_overtaken(file, table, partitions):
        entries = write(file, table, partitions)
        lake.write(ATTEMPTS, [attempt(0, shard=SHARDS[0], seed=70)], SHARDS[0])
        lake.delete(ATTEMPTS, SHARDS[1])
        return entries

    monkeypatch.setattr(table_merging, "write_merged", write_and_be_overtaken)
    next(merge_tables(filled))
    assert own(filled) == [SHARDS[0]]
    assert filled.lake.read(ATTEMPTS, [SHARDS[0]])["seed"].to_pylist() == [70]
    assert not filled.lake.exists(ATTEMPTS, SHARDS[1])
    assert filled.lake.partitions(ATTEMPTS) == [SHARDS[0], *SHARDS[2:]]


def test_only_finished_shards_are_merged(home):
    fill(home)
    with home.journal("scores", SHARDS[0]) as journal:
        journal.append({"a": 1})
        home.lake.delete(SCORES, SHARDS[1])
        list(merge_tables(home))
    assert own(home) == SHARDS[:2]
    list(merge_tables(home))
    assert own(home) == SHARDS[1:2]


def test_any_client_reads_merged_rows(home):
    fill(home)
    refresh_views(home)
    with duckdb.connect(home.warehouse, read_only=True) as client:
        before = client.sql(ROWS).fetchall()
        list(merge_tables(home))
        assert own(home) == [] and client.sql(ROWS).fetchall() == before
        home.lake.write(ATTEMPTS, [attempt(0, shard=SHARDS[0], seed=50)], SHARDS[0])
        home.lake.delete(ATTEMPTS, SHARDS[1])
        assert client.sql(ROWS).fetchall() == [(SHARDS[0], 1, 50), *before[2:]]
    with duckdb.connect(home.warehouse, read_only=True) as client:
        assert client.sql(ROWS).fetchall() == [(SHARDS[0], 1, 50), *before[2:]]


def test_a_flipped_bit_is_found_and_the_rest_is_saved(home):
    fill(home)
    before = home.lake.content_hashes(ATTEMPTS)
    list(merge_tables(home))
    (name,) = home.lake.merged_files(ATTEMPTS)
    assert list(find_damage(table_checks(home, [ATTEMPTS]), 2)) == []
    file = Path(home.lake.storage.url(f"attempts/_merged/{name}"))
    content, footer = bytearray(file.read_bytes()), pq.read_metadata(file)
    content[footer.row_group(2).column(0).dictionary_page_offset + 40] ^= 1
    file.write_bytes(content)
    (damage,) = find_damage(table_checks(home, [ATTEMPTS]), 2)
    assert damage.file == str(file) and damage.subject == ("attempts", SHARDS[2])
    with pytest.raises(FoundryError, match=f"{name} is damaged .*verify --repair"):
        run_query(home, "SELECT count(*) FROM attempts")
    home.lake.unmerge(ATTEMPTS, name)
    file.unlink()
    del before[SHARDS[2]]
    assert home.lake.content_hashes(ATTEMPTS) == before


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_nothing(tmp_path):
    prepared = Home(tmp_path / "prepared")
    fill(prepared)
    list(merge_tables(prepared))  # so that a merged file is replaced, too
    for shard in SHARDS[:2]:
        prepared.lake.write(ATTEMPTS, [attempt(0, shard=shard, seed=80)], shard)
    prepared.lake.delete(ATTEMPTS, SHARDS[2])
    prepared.lake.write(SCORES, [], "sketchbook-0100")
    prepared.lake.write(SCORES, [], "sketchbook-0101")
    expected = everything(prepared)
    (tmp_path / "kills").mkdir()
    program = KILLS.replace(
        "compaction import compact", "table_merging import merge_tables as compact"
    )
    call = [sys.executable, "-c", program, prepared.root, str(tmp_path / "kills")]
    done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True)
    killed = list(map(Home, done.stdout.split()))
    assert len(killed) > 10
    for home in killed:
        assert everything(home) == expected
        list(merge_tables(home))
        assert own(home) == [] and everything(home) == expected


def everything(home: Home) -> object:
    names = home.lake.partitions(SCORES)
    rows = connect(home).sql(ROWS).fetchall()
    return names, home.lake.content_hashes(ATTEMPTS), home.lake.read(ATTEMPTS).to_pylist(), rows
