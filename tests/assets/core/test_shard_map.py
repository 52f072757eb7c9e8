"""Groups of shards in threads: order, errors, and how many results wait."""

import threading
import time

import pytest

from assets.core import shard_map
from assets.core.shard_map import map_shards
from schemas import FoundryError, StorageError
from warehouse import Home

GROUPS = [([f"s-{number}"], number) for number in range(9)]


def thread_of(shards, number):
    time.sleep(0.02 if number == 0 else 0)  # so that others finish before the first
    return number, threading.current_thread().name


def damaged(shards, number):
    raise StorageError("/lake/scores/s-0/part-0.parquet is damaged")


def broken(shards, number):
    raise ValueError("no such column\nand a second line")


@pytest.fixture
def lake(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_map, "worker_count", lambda: 2)
    return Home(tmp_path).lake


def test_results_come_in_order_from_other_threads(lake):
    numbers, threads = zip(*map_shards(lake, thread_of, GROUPS, len(GROUPS)), strict=True)
    assert list(numbers) == [*range(9)]
    assert threading.current_thread().name not in threads


def test_groups_are_read_as_workers_become_free(lake):
    read = []
    groups = (read.append(group) or group for group in GROUPS)
    results = map_shards(lake, thread_of, groups, len(GROUPS))
    next(results)
    assert len(read) == 4, "two for each worker"
    results.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("shards")]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (damaged, "^/lake/scores/s-0/part-0.parquet is damaged$"),
        (broken, "^shard s-0: ValueError: no such column$"),
    ],
)
def test_a_failure_is_one_line(lake, function, message):
    with pytest.raises(FoundryError, match=message):
        list(map_shards(lake, function, GROUPS, len(GROUPS)))
