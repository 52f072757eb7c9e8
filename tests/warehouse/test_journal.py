import multiprocessing
import os
import random
import signal
import time

import pytest

from schemas import StorageError
from warehouse import Journal
from warehouse.journal import encode_record

# Imports this module once, for all writers.
WRITERS = multiprocessing.get_context("forkserver")
WRITERS.set_forkserver_preload([__name__])


def write(path, ready):
    with Journal(path) as journal:
        done = sum(1 for _ in journal.records())
        ready.set()
        for number in range(done, 1_000_000):
            journal.append({"number": number, "text": "x" * (number % 5000)})


def start_writer(path):
    """A process that has begun to write."""
    ready = WRITERS.Event()
    process = WRITERS.Process(target=write, args=(path, ready), daemon=True)
    process.start()
    assert ready.wait(60)
    return process


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


def test_a_journal_that_was_never_written_or_removed_has_no_records(tmp_path):
    journal = Journal(tmp_path / "a.jsonl")
    assert list(journal.records()) == [] and not journal.path.exists()
    journal.remove()
    with journal:
        journal.append({"number": 1})
    journal.remove()
    assert list(journal.records()) == [] and not journal.path.exists()


TORN = (b'{"number": 2, "te', b"\0\0\0", b'{"number": 2}', b"x" * 200_000)


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("count", [0, 2])
def test_an_incomplete_last_line_is_skipped_then_removed(tmp_path, count, torn):
    path = tmp_path / "shard.jsonl"
    lines = b"".join(encode_record({"number": number}) for number in range(count))
    path.write_bytes(lines + torn)
    journal = Journal(path)
    assert [record["number"] for record in journal.records()] == [*range(count)]
    journal.append({"number": 3})
    journal.close()
    assert path.read_bytes() == lines + encode_record({"number": 3})


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
    writer = start_writer(path)
    try:
        with pytest.raises(StorageError, match="is being written by another process") as error:
            Journal(path).append({"number": -1})
        assert "\n" not in str(error.value)
    finally:
        writer.kill()
        writer.join()
    with Journal(path) as journal:
        journal.append({"number": -1})


def test_killed_writers_lose_no_appended_record(tmp_path):
    path = tmp_path / "shard.jsonl"
    rng = random.Random(7)
    finished = 0
    for _ in range(10):
        writer = start_writer(path)
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        numbers = [record["number"] for record in Journal(path).records()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= finished
        finished = len(numbers)
    assert finished > 0
