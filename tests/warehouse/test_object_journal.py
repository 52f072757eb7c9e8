import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from schemas import StorageError
from warehouse import Home
from warehouse.journal import encode_record
from warehouse.object_journal import _MERGE_ABOVE, Lease

WRITER = """
import sys
from warehouse import Home

with Home(sys.argv[1]).journal("plans", "shard") as journal:
    done = sum(1 for _ in journal.records())
    for number in range(done, 1_000_000):
        journal.append({"number": number})
        print(number, flush=True)
"""
HOLDER = """
import sys, time
from warehouse import Home
from warehouse.object_journal import Lease

Lease(Home(sys.argv[1]).storage, "lease.json", float(sys.argv[2])).acquire()
print("acquired", flush=True)
time.sleep(600)
"""


@pytest.fixture
def journal(s3_home):
    return s3_home.journal("plans", "shard")


def numbers(journal):
    return [record["number"] for record in journal.records()]


def test_records_are_in_order_across_owners(s3_home, journal):
    assert numbers(journal) == []
    for start in (0, 2):
        with s3_home.journal("plans", "shard") as mine:
            mine.append({"number": start})
            mine.append({"number": start + 1})
    assert numbers(journal) == [0, 1, 2, 3]
    assert not (s3_home.local / "journals").exists()


def test_one_worker_writes_at_a_time(s3_home, journal, monkeypatch):
    monkeypatch.setenv("INTERLEAVE_LEASE_SECONDS", "5")
    with s3_home.journal("plans", "shard") as mine:
        mine.append({"number": 0})
        with pytest.raises(StorageError, match="belongs to another worker"):
            s3_home.journal("plans", "shard").append({"number": -1})
        with s3_home.journal("plans", "other") as other:
            other.append({"number": 7})
    assert numbers(journal) == [0]


async def test_concurrent_records_share_segments(s3_home, journal):
    with s3_home.journal("plans", "shard") as mine:
        await asyncio.gather(*(mine.add({"number": number}) for number in range(50)))
    assert sorted(numbers(journal)) == list(range(50))
    assert len(journal._storage.names(".jsonl")) < 50


def test_many_segments_are_merged_and_removed(s3_home, journal):
    with s3_home.journal("plans", "shard") as mine:
        for number in range(_MERGE_ABOVE + 5):
            mine.append({"number": number})
    with s3_home.journal("plans", "shard") as mine:
        assert len(mine._storage.names(".jsonl")) == 1
        mine.append({"number": _MERGE_ABOVE + 5})
    assert numbers(journal) == list(range(_MERGE_ABOVE + 6))
    s3_home.journal("plans", "shard").remove()
    assert numbers(journal) == []


def test_a_segment_written_after_losing_the_lease_is_read(s3_home, journal):
    with s3_home.journal("plans", "shard") as first:
        first.append({"number": 0})
        first._lease._valid_until = 0.0
        with pytest.raises(StorageError, match="may belong to another worker now: run again"):
            first.append({"number": 1})
        first._put(encode_record({"number": 2}))  # it was being written when the lease ran out
    assert numbers(journal) == [0, 2]


def test_a_kill_loses_no_appended_record(s3_home, journal, monkeypatch):
    monkeypatch.setenv("INTERLEAVE_LEASE_SECONDS", "2")
    for _ in range(2):
        command = [sys.executable, "-c", WRITER, s3_home.root]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        finished = [int(writer.stdout.readline()) for _ in range(10)]
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        assert numbers(journal)[: finished[-1] + 1] == list(range(finished[-1] + 1))
    assert numbers(journal) == sorted(set(numbers(journal)))


def test_a_damaged_line_is_named(s3_home, journal):
    with s3_home.journal("plans", "shard") as mine:
        mine._put(encode_record({"number": 0}) + b"not json\n")
    with pytest.raises(StorageError, match=r"000001-00000000\.jsonl:2: damaged, its checksum"):
        numbers(journal)


def test_an_invalid_lease_duration_is_rejected(s3_home, monkeypatch):
    for text in ("soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv("INTERLEAVE_LEASE_SECONDS", text)
        with pytest.raises(StorageError, match="set it to a number of seconds"):
            Home(s3_home.root).journal("plans", "shard")


def lease(home, seconds=60.0):
    return Lease(home.storage, "lease.json", seconds)


@pytest.fixture
def holder(s3_home):
    """Starts a process that holds the lease for some seconds at a time."""
    processes = []

    def start(seconds):
        command = [sys.executable, "-c", HOLDER, s3_home.root, str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "acquired\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_of_many_at_once_one_acquires_it(s3_home):
    barrier = threading.Barrier(8)

    def acquire(_):
        mine = lease(s3_home, 2.0)
        barrier.wait()
        try:
            return mine.acquire()
        except StorageError:
            return None

    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(acquire, range(8)))
    assert sorted(epochs, key=str) == [1, *[None] * 7]


def test_a_living_owner_renews_it_and_a_dead_one_loses_it(s3_home, holder):
    process = holder(2.0)
    time.sleep(3.5)
    with pytest.raises(StorageError, match=r"belongs to another worker \(.*process") as error:
        lease(s3_home).acquire()
    assert "\n" not in str(error.value)
    os.kill(process.pid, signal.SIGKILL)
    assert lease(s3_home).acquire() == 2


def test_an_owner_that_was_stopped_for_too_long_fails_its_check(s3_home, monkeypatch):
    sleeper, other = lease(s3_home, 0.6), lease(s3_home)
    # Like the threads of a stopped process.
    monkeypatch.setattr(Lease, "_renew", lambda self: None)
    sleeper.acquire()
    assert other.acquire() == 2
    with pytest.raises(StorageError, match="may belong to another worker now: run again"):
        sleeper.check()
    sleeper.release()  # must not take it from its new owner
    with pytest.raises(StorageError, match="belongs to another worker"):
        monkeypatch.undo()
        third = lease(s3_home, 0.6)
        _renew_soon(other)
        third.acquire()


def _renew_soon(held):
    """As its thread would do, which does not run in this test."""
    threading.Timer(0.5, lambda: held._write(2, held._version, 60.0)).start()


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_clock_that_is_off_neither_loses_nor_prolongs_a_lease(s3_home, monkeypatch, hours):
    owner = lease(s3_home, 1.5)
    real = time.time
    with monkeypatch.context() as shifted:
        shifted.setattr(time, "time", lambda: real() + hours * 3600)
        owner.acquire()
        threading.Timer(0.5, lambda: owner._write(1, owner._version, 1.5)).start()
    with pytest.raises(StorageError, match="belongs to another worker"):
        lease(s3_home).acquire()
    owner._released.set()  # its process dies
    assert lease(s3_home).acquire() == 2
