"""All processes of a training, also those that left its process group, and how to end them.

Ray's daemons start sessions of their own, so a signal to a group misses them. But every process
inherits its parent's environment: a variable set on the first one marks all its descendants.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import psutil

# Marks every process of a job; its value is the job's folder.
JOB_MARK = "INTERLEAVE_TRAINING_JOB"
# Marks every process of one trainer that a driver started; its value is unique.
TRAINER_MARK = "INTERLEAVE_TRAINER"
_KILL_SECONDS = 5.0
_POLL_SECONDS = 0.05
# Processes may start others while they are being killed.
_KILL_ROUNDS = 3


def find_marked(mark: str, value: str) -> list[psutil.Process]:
    """Processes with a variable of that value, and their descendants; never this process."""
    found = {process.pid: process for process in _with_variable(mark, value)}
    for process in list(found.values()):
        with suppress(psutil.Error):
            found |= {child.pid: child for child in process.children(recursive=True)}
    found.pop(os.getpid(), None)
    return list(found.values())


def terminate_processes(find: Callable[[], list[psutil.Process]], grace: float) -> None:
    """TERM what `find` returns, then KILL what is still alive after `grace` seconds.

    An interruption while waiting goes straight to KILL.
    """
    known = find()
    try:
        _signal(known, psutil.Process.terminate)
        _wait(known, grace)
    finally:
        for _ in range(_KILL_ROUNDS):
            # A child may have lost its mark and its parent: `known` still has it.
            known = [process for process in {*known, *find()} if _is_alive(process)]
            _signal(known, psutil.Process.kill)
            _wait(known, _KILL_SECONDS)


def _signal(processes: Iterable[psutil.Process], send: Callable[[psutil.Process], object]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            send(process)


def _wait(processes: Iterable[psutil.Process], seconds: float) -> None:
    """Until none is alive. Does not reap them: exit codes stay for their parents."""
    deadline = time.monotonic() + seconds
    while any(_is_alive(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _is_alive(process: psutil.Process) -> bool:
    """A zombie is not: only its parent, or a container's init, can remove it."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _with_variable(name: str, value: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        # Other users' processes cannot be read; finished ones are gone.
        with suppress(psutil.Error, OSError):
            if process.environ().get(name) == value:
                yield process
