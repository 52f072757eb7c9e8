"""Gathering questions: how many at once, whose error is whose, what a cancelled asker costs."""

import asyncio
import threading

import pytest

from inference.engine.batching import Batcher


def upper(batches):
    def work(items, given_up):
        batches.append(list(items))
        return [ValueError(item) if item == "bad" else item.upper() for item in items]

    return work


async def test_questions_are_gathered_into_batches_of_at_most_so_many():
    batches = []
    batcher = Batcher(upper(batches), 3, 0.001)
    names = ["a", "b", "c", "d", "e", "f", "g"]
    assert await asyncio.gather(*map(batcher.submit, names)) == [name.upper() for name in names]
    assert batches == [["a", "b", "c"], ["d", "e", "f"], ["g"]]


async def test_what_arrives_during_a_batch_forms_the_next():
    batches, running, go_on = [], threading.Event(), threading.Event()

    def work(items, given_up):
        running.set()
        go_on.wait()
        return upper(batches)(items, given_up)

    batcher = Batcher(work, 8, 0)
    first = asyncio.create_task(batcher.submit("a"))
    await asyncio.to_thread(running.wait)
    others = [asyncio.create_task(batcher.submit(name)) for name in "bcd"]
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.gather(first, *others) == ["A", "B", "C", "D"]
    assert batches == [["a"], ["b", "c", "d"]]


async def test_a_batch_is_of_one_kind_and_nobody_is_overtaken_for_long():
    batches = []
    batcher = Batcher(upper(batches), 3, 0.001, group_by=len)
    names = ["a", "bb", "c", "dd", "e", "f", "gg"]
    assert await asyncio.gather(*map(batcher.submit, names)) == [name.upper() for name in names]
    assert batches == [["a", "c", "e"], ["bb", "dd", "gg"], ["f"]]


async def test_an_error_reaches_its_own_asker_alone():
    batcher = Batcher(upper([]), 8, 0)
    answers = await asyncio.gather(*map(batcher.submit, ["a", "bad", "c"]), return_exceptions=True)
    assert [answers[0], answers[2]] == ["A", "C"]
    assert isinstance(answers[1], ValueError)


async def test_an_error_of_the_whole_batch_reaches_all_and_the_next_batch_works():
    attempts = []

    def work(items, given_up):
        attempts.append(items)
        if len(attempts) == 1:
            raise MemoryError("too much")
        return items

    batcher = Batcher(work, 8, 0)
    failed = await asyncio.gather(batcher.submit("a"), batcher.submit("b"), return_exceptions=True)
    assert [type(error) for error in failed] == [MemoryError, MemoryError]
    assert await batcher.submit("c") == "c"


async def test_work_is_told_when_nobody_waits_any_more():
    running, told = threading.Event(), threading.Event()

    def work(items, given_up):
        running.set()
        while not given_up():
            pass
        told.set()
        return items

    batcher = Batcher(work, 8, 0)
    asker = asyncio.create_task(batcher.submit("a"))
    await asyncio.to_thread(running.wait)
    asker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker
    assert await asyncio.to_thread(told.wait, 10)


async def test_cancelled_questions_are_not_worked_on():
    batches = []
    batcher = Batcher(upper(batches), 8, 0.05)
    kept, dropped = (asyncio.create_task(batcher.submit(name)) for name in "ab")
    await asyncio.sleep(0)
    dropped.cancel()
    assert await kept == "A"
    assert batches == [["a"]]


def test_one_batcher_serves_loops_that_come_and_go():
    batcher = Batcher(upper([]), 8, 0)
    assert [asyncio.run(batcher.submit(name)) for name in "ab"] == ["A", "B"]
