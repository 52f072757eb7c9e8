"""Start a driver in a session of its own, and end all processes of a training.

Ray's daemons start sessions of their own, so a signal to a group misses them. But every process
inherits its parent's environment: a variable set on the first one marks all its descendants.

The local launcher supervises drivers itself; on a cluster's node this module is the job's command,
`python -m inference.servers.processes MODULE JOB_FILE GRACE_SECONDS`.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

DRIVER_LOG = "driver.log"
# A file in a job's folder: what starts there now ends at once, since nobody waits for it.
WITHDRAWN = "withdrawn"
# Set by a launcher that holds the other end of standard input, which closes when it dies.
PARENT_PIPE = "INTERLEAVE_TRAINING_LEASH"
# Marks every process of a job; its value is the job's folder.
JOB_MARK = "INTERLEAVE_TRAINING_JOB"
# Marks every process of one trainer that a driver started; its value is unique.
TRAINER_MARK = "INTERLEAVE_TRAINER"
_GRACE_SECONDS = 5.0
_KILL_SECONDS = 5.0
_STDIN = 0
_POLL_SECONDS = 0.05
# Processes may start others while they are being killed.
_KILL_ROUNDS = 3
_TAIL_BYTES = 200_000
_MAX_REASON = 300  # characters
_REMEDY = "use a smaller batch, shorter answers or smaller pictures"
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError|can't allocate memory|std::bad_alloc")
# The last line of a Python traceback: an exception's dotted name, then what it says.
_EXCEPTION = re.compile(r"^(?:\([^)]*\) *)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)$", re.M)


@contextmanager
def supervised_driver(
    module: str, file: Path, variables: Mapping[str, str], grace: float, leash: bool = True
) -> Iterator[subprocess.Popen[bytes]]:
    """The driver's process, in the folder of its job file; leaving the context ends all of it.

    What an earlier attempt at the same job left running is ended first. `grace`: seconds between
    TERM and KILL. `leash`: it ends when this process does, however that dies.
    """
    folder = file.parent
    variables = {**variables, JOB_MARK: str(folder), **({PARENT_PIPE: "1"} if leash else {})}
    terminate_processes(lambda: find_marked(JOB_MARK, str(folder)), grace)
    with (folder / DRIVER_LOG).open("ab") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", module, str(file)],
            cwd=folder,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE if leash else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield driver
    finally:
        terminate_processes(lambda: _all_processes(driver.pid, folder), grace)
        driver.communicate()


def find_driver(module: str, file: Path) -> psutil.Process | None:
    """The driver of a job file that runs without a leash; None: there is none."""
    for process in find_marked(JOB_MARK, str(file.parent)):
        with suppress(psutil.Error, OSError):
            # Its guard, a fork, has the same variables and command.
            leads = os.getsid(process.pid) == process.pid
            unleashed = leads and PARENT_PIPE not in process.environ()
            if unleashed and process.cmdline()[-2:] == [module, str(file)] and _is_alive(process):
                return process
    return None


@contextmanager
def followed_driver(
    driver: psutil.Process, folder: Path, grace: float
) -> Iterator[Callable[[], int | None]]:
    """A driver that another process started; leaving the context ends all of it.

    Gives None while it runs, then 0: only its parent learns the exit code.
    """
    try:
        yield lambda: None if _is_alive(driver) else 0
    finally:
        terminate_processes(lambda: _all_processes(driver.pid, folder), grace)


def find_marked(mark: str, value: str) -> list[psutil.Process]:
    """Processes with a variable of that value, and their descendants; never this process."""
    marked = []
    for process in psutil.process_iter():
        # Other users' processes cannot be read; finished ones are gone.
        with suppress(psutil.Error, OSError):
            if process.environ().get(mark) == value:
                marked.append(process)
    found = {process.pid: process for process in marked}
    for process in marked:
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
        _signal(known, psutil.Process.terminate, grace)
    finally:
        for _ in range(_KILL_ROUNDS):
            # A child may have lost its mark and its parent: `known` still has it.
            known = [process for process in {*known, *find()} if _is_alive(process)]
            _signal(known, psutil.Process.kill, _KILL_SECONDS)


def prepare_driver() -> None:
    """Have this process, a driver, end what it started when it is told to or its parent dies."""
    guard_session(_GRACE_SECONDS)  # first: a fork has only this thread
    signal.signal(signal.SIGTERM, exit_on_signal)
    if os.environ.pop(PARENT_PIPE, None):
        threading.Thread(target=_terminate_at_end_of_stdin, daemon=True).start()


@contextmanager
def program_of_driver(
    command: Sequence[str], variables: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver's program, whose output is appended to a log; leaving the context ends all of it.

    `variables`: added to this process's own.
    """
    mark = uuid.uuid4().hex
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        program = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,  # ours is the parent's pipe
            stdout=output,
            stderr=output,
            env={**os.environ, **variables, TRAINER_MARK: mark},
        )
    try:
        yield program
    finally:
        terminate_processes(lambda: find_marked(TRAINER_MARK, mark), _GRACE_SECONDS)
        program.wait()


def guard_session(grace: float) -> None:
    """Have a process of its own end what this one's session leaves running if this one is killed.

    Some outlive it otherwise: vLLM's engine does not notice that its parent was killed as well, and
    a process that sets its title, as it does, loses its mark.
    """
    session = os.getpid()
    if os.getsid(0) != session:  # started by hand, in a terminal's session
        return
    read, write = os.pipe()
    if os.fork():
        os.close(read)  # the other end is closed by the end of this process
        return
    try:
        os.close(write)
        os.read(read, 1)
        terminate_processes(lambda: _members(session), grace)
    finally:
        os._exit(0)


def exit_on_signal(number: int, _frame: FrameType | None) -> None:
    """A signal handler that ends this process as an exception would, cleaning up."""
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the clean-up
    raise SystemExit(128 + number)


def exit_reason(code: int, log: Path, remedy: str = _REMEDY) -> str:
    """One line about a process that ended with a code, from the code and the end of its log.

    `remedy`: what to do where memory was short.
    """
    tail = log_tail(log, _TAIL_BYTES)
    if _OUT_OF_MEMORY.search(tail):
        return f"it ran out of memory: {remedy}"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return f"it was killed, most likely by the system for lack of memory: {remedy}"
    if exceptions := _EXCEPTION.findall(tail):
        line = " ".join(exceptions[-1].split())
        return f"it ended with {line[:_MAX_REASON]}{'...' if len(line) > _MAX_REASON else ''}"
    end = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"it ended with {end}"


def log_tail(log: Path, size: int) -> str:
    """The last `size` bytes of a log as text; empty where there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - size))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _terminate_at_end_of_stdin() -> None:
    """Standard input ends when the launcher does, even when it is killed.

    Read without Python's buffer, whose lock a thread must not hold when the interpreter ends.
    """
    while os.read(_STDIN, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _all_processes(session: int, folder: Path) -> list[psutil.Process]:
    """Everything in the driver's session, and everything marked as the job's."""
    return [*{*_members(session), *find_marked(JOB_MARK, str(folder))}]


def _members(session: int) -> list[psutil.Process]:
    """All processes of a session; never this process."""
    members = []
    for process in psutil.process_iter():
        with suppress(OSError):
            if os.getsid(process.pid) == session and process.pid != os.getpid():
                members.append(process)
    return members


def _signal(
    processes: Iterable[psutil.Process], send: Callable[[psutil.Process], object], seconds: float
) -> None:
    """Send, and wait until none is alive. Does not reap: exit codes stay for their parents."""
    for process in processes:
        with suppress(psutil.Error):
            send(process)
    deadline = time.monotonic() + seconds
    while any(_is_alive(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _is_alive(process: psutil.Process) -> bool:
    """A zombie is not: only its parent, or a container's init, can remove it."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def main(argv: list[str]) -> int:
    """Supervise a driver to its end; returns its exit code, a signal's as 128 plus its number."""
    signal.signal(signal.SIGTERM, exit_on_signal)
    module, file, grace = argv
    if Path(file).with_name(WITHDRAWN).exists():
        return 0
    with supervised_driver(module, Path(file), {}, float(grace)) as driver:
        code = driver.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
