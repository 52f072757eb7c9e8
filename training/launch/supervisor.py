"""Start a driver in a session of its own, and end all of its processes.

The local launcher supervises drivers itself; on a cluster's node this module is the job's command,
`python -m training.launch.supervisor MODULE JOB_FILE GRACE_SECONDS`.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from .driver import DRIVER_LOG, PARENT_PIPE, exit_on_signal
from .processes import JOB_MARK, find_marked, terminate_processes


@contextmanager
def supervised_driver(
    module: str, file: Path, variables: Mapping[str, str], grace: float
) -> Iterator[subprocess.Popen[bytes]]:
    """The driver's process, in the folder of its job file; leaving the context ends all of it.

    What an earlier attempt at the same job left running is ended first.

    Args:
        grace: seconds between TERM and KILL.
    """
    folder = file.parent
    terminate_processes(lambda: find_marked(JOB_MARK, str(folder)), grace)
    with (folder / DRIVER_LOG).open("ab") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", module, str(file)],
            cwd=folder,
            env={**os.environ, **variables, JOB_MARK: str(folder), PARENT_PIPE: "1"},
            stdin=subprocess.PIPE,  # ends when this process does, however it dies
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield driver
    finally:
        terminate_processes(lambda: _all_processes(driver.pid, folder), grace)
        driver.communicate()


def _all_processes(session: int, folder: Path) -> list[psutil.Process]:
    """Everything in the driver's session, and everything marked as the job's."""
    members = [process for process in psutil.process_iter() if _session_of(process) == session]
    return [*{*members, *find_marked(JOB_MARK, str(folder))}]


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def main(argv: list[str]) -> int:
    """Supervise a driver to its end; returns its exit code, a signal's as 128 plus its number."""
    signal.signal(signal.SIGTERM, exit_on_signal)
    module, file, grace = argv
    with supervised_driver(module, Path(file), {}, float(grace)) as driver:
        code = driver.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
