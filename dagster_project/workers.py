"""Worker processes that end with the command that started them and report progress to it.

A worker may be killed at any moment: its finished calls are in the journals.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.queues import SimpleQueue

from assets.core.progress import ProgressFactory
from inference.calls.progress import Progress
from schemas import FoundryError

_Reports = SimpleQueue[tuple[str, int, int, str] | None]  # label, done, total, note; None: the end
_reports: _Reports | None = None  # in a worker
_number = 0  # of a worker


@contextmanager
def worker_processes(count: int, progress: ProgressFactory) -> Iterator[ProcessPoolExecutor]:
    """A pool of new processes, stopped at once by Ctrl-C and by the death of this process; what
    they report through `RelayedProgress` goes to `progress`.

    Raises:
        FoundryError: a worker was killed, as happens when memory runs out.
    """
    spawn = multiprocessing.get_context("spawn")
    try:
        with (
            _relay(spawn.SimpleQueue(), progress) as reports,
            ProcessPoolExecutor(
                count, spawn, _initialize_worker, (reports, _numbers(spawn.SimpleQueue(), count))
            ) as pool,
        ):
            try:
                yield pool
            except KeyboardInterrupt:  # leaving the pool would wait for running work
                for worker in multiprocessing.active_children():
                    worker.kill()
                raise
    except BrokenProcessPool as error:
        raise FoundryError(
            "a worker process was killed, perhaps out of memory: nothing finished is lost, "
            "run again with fewer --jobs, or with `training: {side_by_side: false}`"
        ) from error


def worker_number() -> int:
    """Of this process among those of its pool, from 0."""
    return _number


class RelayedProgress:
    """Progress sent to the parent process; the same label continues the same bar."""

    def __init__(self, label: str) -> None:
        self._label = label

    def update(self, done: int, total: int, note: str = "") -> None:
        if _reports:
            _reports.put((self._label, done, total, note))


@contextmanager
def _relay(reports: _Reports, progress: ProgressFactory) -> Iterator[_Reports]:
    listener = threading.Thread(target=_forward, args=(reports, progress), daemon=True)
    listener.start()
    yield reports
    # Not after a failure: a worker that was killed may have died holding the queue's lock.
    reports.put(None)
    listener.join()


def _forward(reports: _Reports, progress: ProgressFactory) -> None:
    listeners: dict[str, Progress] = {}
    while report := reports.get():
        label, done, total, note = report
        if label not in listeners:
            listeners[label] = progress(label)
        listeners[label].update(done, total, note)


def _numbers(queue: SimpleQueue[int], count: int) -> SimpleQueue[int]:
    """A number for each worker."""
    for number in range(count):
        queue.put(number)
    return queue


def _initialize_worker(reports: _Reports, numbers: SimpleQueue[int]) -> None:
    """Report progress to the parent, and end with it."""
    global _reports, _number
    _reports, _number = reports, numbers.get()
    _leave_to_parent()


def _leave_to_parent() -> None:
    """Let a worker process ignore SIGINT, which its parent handles, and exit when that dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
