import asyncio
import os
import signal
import subprocess
import sys

import pytest

from schemas import StorageError
from warehouse import Home
from warehouse.journal import encode_record
from warehouse.object_journal import _MERGE_ABOVE

WRITER = """
import sys
from warehouse import Home

with Home(sys.argv[1]).journal("plans", "shard") as journal:
    done = sum(1 for _ in journal.records())
    for number in range(done, 1_000_000):
        journal.append({"number": number})
        print(number, flush=True)
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
    monkeypatch.setenv("INTERLEAVE_LEASE_SECONDS", "1.5")
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
