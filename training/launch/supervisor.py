"""Keep a driver: start it in a session of its own, and see that nothing of it stays behind.

The local launcher keeps drivers itself; on a cluster's node this module is the job's command,
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

from .driver import DRIVER_LOG, LEASH, exit_on_signal
from .processes import JOB_MARK, end_processes, marked


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
    end_processes(lambda: marked(JOB_MARK, str(folder)), grace)
    with (folder / DRIVER_LOG).open("ab") as log:
        # Standard input is the leash: it ends when this process does, however it dies.
        driver = subprocess.Popen(
            [sys.executable, "-m", module, str(file)],
            cwd=folder,
            env={**os.environ, **variables, JOB_MARK: str(folder), LEASH: "1"},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield driver
    finally:
        end_processes(lambda: _all_of(driver.pid, folder), grace)
        driver.communicate()


def _all_of(session: int, folder: Path) -> list[psutil.Process]:
    """Everything in the driver's session, and everything marked as the job's."""
    members = [process for process in psutil.process_iter() if _session_of(process) == session]
    return [*{*members, *marked(JOB_MARK, str(folder))}]


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def main(argv: list[str]) -> int:
    """Keep a driver to its end; its exit code, a signal's as 128 and its number."""
    signal.signal(signal.SIGTERM, exit_on_signal)
    module, file, grace = argv
    with supervised_driver(module, Path(file), {}, float(grace)) as driver:
        code = driver.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
