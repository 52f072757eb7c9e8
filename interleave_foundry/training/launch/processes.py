"""All processes of a training, also those that left its process group, and their end.

Ray's daemons start sessions of their own, so a signal to a group misses them. But every process
inherits its parent's environment: a variable set on the first one marks all that come of it.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import psutil

# Marks every process of a job; its value is the job's folder.
JOB_MARK = "INTERLEAVE_TRAINING_JOB"
# Marks every process of one trainer that a driver started; its value is unique.
TRAINER_MARK = "INTERLEAVE_TRAINER"
_KILL_SECONDS = 5.0
# Processes may start others while they are being killed.
_KILL_ROUNDS = 3


def marked(mark: str, value: str) -> list[psutil.Process]:
    """Processes with a variable of that value, and their descendants; never this process."""
    found = {process.pid: process for process in _carrying(mark, value)}
    for process in list(found.values()):
        found |= {child.pid: child for child in _descendants(process)}
    found.pop(os.getpid(), None)
    return list(found.values())


def end_processes(find: Callable[[], list[psutil.Process]], grace: float) -> None:
    """TERM what `find` returns, then KILL what is still there after `grace` seconds.

    An interruption while waiting goes straight to KILL.
    """
    known = find()
    try:
        _signal(known, psutil.Process.terminate)
        psutil.wait_procs(known, timeout=grace)
    finally:
        for _ in range(_KILL_ROUNDS):
            # A child may have lost its mark and its parent: it is known from before.
            known = [p for p in {*known, *find()} if p.is_running()]
            _signal(known, psutil.Process.kill)
            psutil.wait_procs(known, timeout=_KILL_SECONDS)


def _signal(processes: Iterable[psutil.Process], send: Callable[[psutil.Process], object]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            send(process)


def _carrying(mark: str, value: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        # Other users' processes cannot be read; finished ones are gone.
        with suppress(psutil.Error, OSError):
            if process.environ().get(mark) == value:
                yield process


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return []
