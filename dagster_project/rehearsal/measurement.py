"""Time, memory and disk of a stage."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

from inference.servers.instance import home_servers
from warehouse import Home

_POLL_SECONDS = 0.5


@dataclass
class Measured:
    """Seconds; peak of resident memory, summed over this process, its children and the home's
    servers (shared pages count in each); bytes that the home has grown by."""

    seconds: float = 0.0
    peak_bytes: int = 0
    disk_bytes: int = 0


@contextmanager
def measured(home: Home) -> Iterator[Measured]:
    """Filled when the context ends, also by an error."""
    result, ended = Measured(), threading.Event()

    def watch() -> None:
        while True:
            result.peak_bytes = max(result.peak_bytes, _resident_bytes(home))
            if ended.wait(_POLL_SECONDS):
                return

    watching = threading.Thread(target=watch, name="memory", daemon=True)
    started, before = time.monotonic(), _disk_bytes(home)
    watching.start()
    try:
        yield result
    finally:
        ended.set()
        watching.join()
        result.seconds = time.monotonic() - started
        result.disk_bytes = _disk_bytes(home) - before


def _resident_bytes(home: Home) -> int:
    roots = [psutil.Process()]
    for folder in home_servers(home):
        if (state := folder.state()) and folder.is_supervised:
            with suppress(psutil.NoSuchProcess):
                roots.append(psutil.Process(state.pid))
    processes: dict[int, psutil.Process] = {}
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            processes |= {each.pid: each for each in (root, *root.children(recursive=True))}
    total = 0
    for process in processes.values():
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def _disk_bytes(home: Home) -> int:
    total = 0
    for path in home.local.rglob("*"):
        with suppress(OSError):
            if path.is_file() and not path.is_symlink():
                total += path.stat().st_size
    return total
