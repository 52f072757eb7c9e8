"""The index of partitions: the same answers as the files, without opening them."""

import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from schemas import StorageError
from schemas.trajectories import ATTEMPTS
from tests.warehouse.conftest import WITHOUT_S3
from warehouse import Home

NAMES = [f"sketchbook-{number:04d}" for number in range(5)]


@pytest.fixture
def filled(any_home, attempts, tmp_path, monkeypatch):
    monkeypatch.setenv("INTERLEAVE_LOCAL", str(tmp_path / "local"))
    for count, name in enumerate(NAMES, 1):
        any_home.lake.write(ATTEMPTS, attempts(count), name)
    return any_home


@pytest.fixture
def opened(monkeypatch):
    """How many Parquet files were opened."""
    calls = []

    def counting(*args, **options):
        calls.append(args)
        return original(*args, **options)

    original = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", counting)
    return calls


def from_files(home: Home) -> dict[str, str]:
    return {name: home.lake.content_hash(ATTEMPTS, name) for name in home.lake.partitions(ATTEMPTS)}


def index_of(home: Home) -> Path:
    return home.local / "partitions.sqlite"


def part_of(home: Home, name: str) -> Path:
    return home.local / "lake/attempts" / name / "part-0.parquet"


@WITHOUT_S3
def test_it_says_what_the_files_say(filled, attempts):
    filled.lake.write(ATTEMPTS, attempts(2), "_requests-20260101")  # is not in it
    assert filled.lake.content_hashes(ATTEMPTS) == from_files(filled)
    assert list(filled.lake.content_hashes(ATTEMPTS)) == NAMES
    assert filled.lake.rows(ATTEMPTS) == 15


def test_no_file_is_opened_that_was_written_here_or_read_before(home, attempts, opened):
    for name in NAMES[:2]:
        home.lake.write(ATTEMPTS, attempts(3), name)
    opened.clear()
    again = Home(home.root)
    again.lake.content_hashes(ATTEMPTS)
    assert again.lake.rows(ATTEMPTS) == 6 and not opened
    index_of(home).unlink()
    index_of(home).mkdir()  # so that no index can be made
    assert Home(home.root).lake.content_hashes(ATTEMPTS) == from_files(home)


def test_another_home_object_sees_replaced_and_removed_partitions(filled, attempts):
    other = Home(filled.root)
    other.lake.content_hashes(ATTEMPTS)
    filled.lake.write(ATTEMPTS, attempts(9), NAMES[0])
    filled.lake.delete(ATTEMPTS, NAMES[1])
    assert other.lake.content_hashes(ATTEMPTS) == from_files(filled)
    assert other.lake.rows(ATTEMPTS) == 9 + 3 + 4 + 5


@pytest.mark.parametrize("break_it", ["delete", "truncate", "overwrite", "flip", "other version"])
def test_a_lost_or_damaged_index_is_made_again(home, attempts, break_it, opened):
    for count, name in enumerate(NAMES, 1):
        home.lake.write(ATTEMPTS, attempts(count), name)
    expected = from_files(home)
    path = index_of(home)
    data = bytearray(path.read_bytes())
    if break_it == "delete":
        path.unlink()
    elif break_it == "truncate":
        path.write_bytes(data[:100])
    elif break_it == "overwrite":
        path.write_bytes(b"no database" * 500)
    elif break_it == "flip":
        where = data.index(expected[NAMES[2]].encode())
        data[where] ^= 1
        path.write_bytes(data)
    else:
        data[60:64] = (99).to_bytes(4)  # SQLite's user_version
        path.write_bytes(data)
    again = Home(home.root)
    assert again.lake.content_hashes(ATTEMPTS) == expected
    again.lake.content_hashes(ATTEMPTS)
    opened.clear()
    assert Home(home.root).lake.content_hashes(ATTEMPTS) == expected and not opened


def test_a_file_that_another_process_replaced_or_that_is_damaged_is_read_again(home, attempts):
    for name in NAMES[:2]:
        home.lake.write(ATTEMPTS, attempts(4), name)
    other = Home(home.local.parent / "other")
    hashed = other.lake.write(ATTEMPTS, attempts(4, seed=1), NAMES[0]).content_hash
    shutil.copy(part_of(other, NAMES[0]), part_of(home, NAMES[0]))
    assert home.lake.content_hashes(ATTEMPTS)[NAMES[0]] == hashed
    os.truncate(part_of(home, NAMES[0]), 50)
    assert list(home.lake.content_hashes(ATTEMPTS)) == NAMES[1:2]
    with pytest.raises(StorageError, match="is damaged"):
        home.lake.rows(ATTEMPTS)
    home.lake.write(ATTEMPTS, attempts(4, seed=1), NAMES[0])
    assert home.lake.content_hashes(ATTEMPTS)[NAMES[0]] == hashed
