"""Worker processes that never outlive the command that started them, and that report to it.

A worker may be killed at any moment: what it has finished is in the journals.
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
from typing import NamedTuple

from assets.core.progress import ProgressFactory
from inference.engine.progress import Progress
from schemas import FoundryError


class _Report(NamedTuple):
    """An update of the progress that has this label."""

    label: str
    done: int
    total: int
    note: str


_Reports = SimpleQueue[_Report | None]  # None: no more will come
_reports: _Reports | None = None  # in a worker


@contextmanager
def worker_processes(count: int, progress: ProgressFactory) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh processes, stopped at once by Ctrl-C and by the death of this process.

    Args:
        progress: where their `RelayedProgress` progress goes.

    Raises:
        FoundryError: a worker was killed, as happens when memory runs out.
    """
    spawn = multiprocessing.get_context("spawn")
    try:
        with (
            _relay(spawn.SimpleQueue(), progress) as reports,
            ProcessPoolExecutor(count, spawn, _join_in, (reports,)) as pool,
        ):
            try:
                yield pool
            except KeyboardInterrupt:  # leaving the pool would wait for the work in hand
                for worker in multiprocessing.active_children():
                    worker.kill()
                raise
    except BrokenProcessPool as error:
        raise FoundryError(
            "a worker process was killed, perhaps for want of memory: nothing finished is lost, "
            "run again with fewer --jobs, or with `training: {side_by_side: false}`"
        ) from error


class RelayedProgress:
    """Progress that a worker tells its parent; the same label goes on with the same bar."""

    def __init__(self, label: str) -> None:
        self._label = label

    def update(self, done: int, total: int, note: str = "") -> None:
        if _reports:
            _reports.put(_Report(self._label, done, total, note))


@contextmanager
def _relay(reports: _Reports, progress: ProgressFactory) -> Iterator[_Reports]:
    listener = threading.Thread(target=_show, args=(reports, progress), daemon=True)
    listener.start()
    yield reports
    # Not after a failure: a worker that was killed may have died holding the queue's lock.
    reports.put(None)
    listener.join()


def _show(reports: _Reports, progress: ProgressFactory) -> None:
    shown: dict[str, Progress] = {}
    while report := reports.get():
        if report.label not in shown:
            shown[report.label] = progress(report.label)
        shown[report.label].update(report.done, report.total, report.note)


def _join_in(reports: _Reports) -> None:
    """Leave Ctrl-C to the parent, tell it of all progress, and end with it however it ends."""
    global _reports
    _reports = reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
