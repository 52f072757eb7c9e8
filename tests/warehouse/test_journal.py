import os
import random
import signal
import subprocess
import sys
import time

import pytest

from schemas import StorageError
from warehouse import Journal
from warehouse.journal import encode_record

WRITER = """
import sys
from pathlib import Path
from warehouse import Journal

with Journal(Path(sys.argv[1])) as journal:
    done = sum(1 for _ in journal.records())
    print("ready", flush=True)
    for number in range(done, 1_000_000):
        journal.append({"number": number, "text": "x" * (number % 5000)})
"""


def test_records_are_read_in_order(tmp_path):
    path = tmp_path / "plans" / "shard.jsonl"
    with Journal(path) as journal:
        journal.append({"text": "two\nlines, ü"})
        journal.append({"nested": {"list": [1, 2.5, None]}})
        assert len(list(journal.records())) == 2
    assert list(Journal(path).records()) == [
        {"text": "two\nlines, ü"},
        {"nested": {"list": [1, 2.5, None]}},
    ]


def test_no_journal_has_no_records(tmp_path):
    assert list(Journal(tmp_path / "none.jsonl").records()) == []
    assert not (tmp_path / "none.jsonl").exists()


def test_a_removed_journal_has_no_records(tmp_path):
    journal = Journal(tmp_path / "a.jsonl")
    journal.remove()
    with journal:
        journal.append({"number": 1})
    journal.remove()
    assert list(journal.records()) == [] and not journal.path.exists()


@pytest.mark.parametrize("torn", [b'{"number": 2, "te', b"\0\0\0", b'{"number": 2}'])
def test_an_incomplete_last_line_is_skipped_then_removed(tmp_path, torn):
    path = tmp_path / "shard.jsonl"
    lines = encode_record({"number": 0}) + encode_record({"number": 1})
    path.write_bytes(lines + torn)
    journal = Journal(path)
    assert [record["number"] for record in journal.records()] == [0, 1]
    journal.append({"number": 3})
    journal.close()
    assert path.read_bytes() == lines + encode_record({"number": 3})


def test_an_incomplete_only_line_longer_than_a_block_is_removed(tmp_path):
    path = tmp_path / "shard.jsonl"
    path.write_bytes(b"x" * 200_000)
    with Journal(path) as journal:
        journal.append({"number": 0})
    assert path.read_bytes() == encode_record({"number": 0})


@pytest.mark.parametrize("line", [b'{"number": 1', b'"text"', b"\xff\xfe"])
def test_a_corrupt_line_in_the_middle_is_named(tmp_path, line):
    path = tmp_path / "shard.jsonl"
    path.write_bytes(encode_record({"number": 0}) + line + b"\n" + encode_record({"number": 2}))
    with pytest.raises(
        StorageError, match=r"shard\.jsonl:2: .*checksum.*takes the line out"
    ) as error:
        list(Journal(path).records())
    assert "\n" not in str(error.value)


def test_one_process_writes_at_a_time(tmp_path):
    path = tmp_path / "shard.jsonl"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout and writer.stdout.readline() == "ready\n"
        with pytest.raises(StorageError, match="is being written by another process") as error:
            Journal(path).append({"number": -1})
        assert "\n" not in str(error.value)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    with Journal(path) as journal:
        journal.append({"number": -1})


@pytest.mark.slow
def test_killed_writers_lose_no_appended_record(tmp_path):
    path = tmp_path / "shard.jsonl"
    rng = random.Random(7)
    finished = 0
    for _ in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout and writer.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0.0, 0.03))
            os.kill(writer.pid, signal.SIGKILL)
        numbers = [record["number"] for record in Journal(path).records()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= finished
        finished = len(numbers)
    assert finished > 0
