"""Groups of shards in worker processes: order, errors, and what is left of a killed command."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from assets.core import shard_map
from assets.core.shard_map import ShardMap
from schemas import FoundryError, StorageError
from warehouse import Home

pytestmark = pytest.mark.slow

GROUPS = [([f"s-{number}"], number) for number in range(5)]


def process_of(shards, number):
    return number, os.getpid()


def damaged(shards, number):
    raise StorageError("/lake/scores/s-0/part-0.parquet is damaged")


def broken(shards, number):
    raise ValueError("no such column\nand a second line")


def killed(shards, number):
    os.kill(os.getpid(), signal.SIGKILL)


def endless(shards, number):
    os.write(1, f"{os.getpid()}\n".encode())  # at once: another process writes lines, too
    time.sleep(600)


@pytest.fixture
def lake(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_map, "worker_count", lambda: 2)
    return Home(tmp_path).lake


def test_results_come_in_order_from_other_processes(lake):
    shard_map = ShardMap(lake)
    numbers, processes = zip(*shard_map.map(process_of, GROUPS, len(GROUPS)), strict=True)
    assert list(numbers) == [0, 1, 2, 3, 4]
    assert os.getpid() not in processes
    _, again = zip(*shard_map.map(process_of, GROUPS, len(GROUPS)), strict=True)
    assert {*again} <= {*processes}, "workers are used again"
    workers = [psutil.Process(process) for process in {*processes}]
    del shard_map
    assert not psutil.wait_procs(workers, timeout=60)[1]


def test_one_group_and_a_lake_in_memory_need_no_process(lake):
    assert [*ShardMap(lake).map(process_of, GROUPS[:1], 1)] == [(0, os.getpid())]
    in_memory = ShardMap(Home("memory://lake").lake).map(process_of, GROUPS, len(GROUPS))
    assert {process for _, process in in_memory} == {os.getpid()}


def test_a_failure_is_one_line(lake):
    messages = {
        damaged: "^/lake/scores/s-0/part-0.parquet is damaged$",
        broken: "^shard s-0: ValueError: no such column$",
        killed: "^a worker process was killed, perhaps out of memory",
    }
    shard_map = ShardMap(lake)
    for function, message in messages.items():
        with pytest.raises(FoundryError, match=message):
            list(shard_map.map(function, GROUPS, len(GROUPS)))
    again = shard_map.map(process_of, GROUPS, len(GROUPS))
    assert [number for number, _ in again] == [0, 1, 2, 3, 4], "a failure leaves no broken pool"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_command(tmp_path, number):
    code = (
        "if __name__ == '__main__':\n"
        " from dagster_project.cli.options import enable_interrupts\n"
        " from tests.assets.core.test_shard_map import *\n"
        " enable_interrupts()\n"
        " shard_map.worker_count = lambda: 2\n"
        f" lake = Home({str(tmp_path)!r}).lake\n"
        " list(ShardMap(lake).map(endless, GROUPS, len(GROUPS)))\n"
    )
    script = tmp_path / "command.py"
    script.write_text(code)
    command = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    workers = [psutil.Process(int(command.stdout.readline())) for _ in range(2)]
    command.send_signal(number)
    command.wait(60)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
