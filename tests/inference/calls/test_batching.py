"""Batches: size, keys, errors and cancellation."""

import asyncio
import threading

import pytest

from inference.calls.batching import Batcher


def upper(batches):
    def work(items, is_abandoned):
        batches.append(list(items))
        return [ValueError(item) if item == "bad" else item.upper() for item in items]

    return work


async def test_items_that_arrive_during_a_batch_form_the_next():
    batches, running, may_finish = [], threading.Event(), threading.Event()

    def work(items, is_abandoned):
        running.set()
        may_finish.wait()
        return upper(batches)(items, is_abandoned)

    batcher = Batcher(work, 8, 0)
    first = asyncio.create_task(batcher.submit("a"))
    await asyncio.to_thread(running.wait)
    others = [asyncio.create_task(batcher.submit(name)) for name in "bcd"]
    await asyncio.sleep(0)
    may_finish.set()
    assert await asyncio.gather(first, *others) == ["A", "B", "C", "D"]
    assert batches == [["a"], ["b", "c", "d"]]


async def test_batch_has_one_key_and_starts_with_the_oldest_item():
    batches = []
    batcher = Batcher(upper(batches), 3, 0.001, group_by=len)
    names = ["a", "bb", "c", "dd", "e", "f", "gg"]
    assert await asyncio.gather(*map(batcher.submit, names)) == [name.upper() for name in names]
    assert batches == [["a", "c", "e"], ["bb", "dd", "gg"], ["f"]]


async def test_error_of_a_batch_is_raised_for_all_and_the_next_batch_works():
    attempts = []

    def work(items, is_abandoned):
        attempts.append(items)
        if len(attempts) == 1:
            raise MemoryError("too much")
        return items

    batcher = Batcher(work, 8, 0)
    failed = await asyncio.gather(batcher.submit("a"), batcher.submit("b"), return_exceptions=True)
    assert [type(error) for error in failed] == [MemoryError, MemoryError]
    assert await batcher.submit("c") == "c"


async def test_work_can_see_that_all_items_were_cancelled():
    running, stopped = threading.Event(), threading.Event()

    def work(items, is_abandoned):
        running.set()
        while not is_abandoned():
            pass
        stopped.set()
        return items

    batcher = Batcher(work, 8, 0)
    task = asyncio.create_task(batcher.submit("a"))
    await asyncio.to_thread(running.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(stopped.wait, 10)


async def test_cancelled_items_are_skipped():
    batches = []
    batcher = Batcher(upper(batches), 8, 0.05)
    waiting, cancelled = (asyncio.create_task(batcher.submit(name)) for name in "ab")
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await waiting == "A"
    assert batches == [["a"]]


def test_one_batcher_serves_several_event_loops():
    batcher = Batcher(upper([]), 8, 0)
    assert [asyncio.run(batcher.submit(name)) for name in "ab"] == ["A", "B"]
