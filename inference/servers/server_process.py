"""A server as a child process: starts it, waits until it is ready, and ends it.

Its parent may be killed: between them is a driver, `python -m inference.servers.server_process
COMMAND.json`, which runs the server as long as its own parent lives, and ends with its exit code.
"""

import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from schemas import FoundryError
from warehouse.atomic import atomic_write

from .processes import (
    DRIVER_LOG,
    exit_reason,
    log_tail,
    prepare_driver,
    program_of_driver,
    supervised_driver,
)

_GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.5
_HEALTH_TIMEOUT_SECONDS = 5.0
_TAIL_BYTES = 4096
_COMMAND = "command.json"
_MODULE = "inference.servers.server_process"
_REMEDY = "give it more `gpus` or `memory` in the profile, or a smaller `max_length`"
# The engine logs its exception; the server's own only says that there was one.
_ENGINE_FAILED = "Engine core initialization failed"
_ENGINE_EXCEPTION = re.compile(
    r"^\([^)]*\) ERROR [^\]]*\] ((?:\w+\.)*\w*(?:Error|Exception)\b.*)$", re.M
)
# What vLLM writes before each line: process, level, time and source line.
_PREFIX = re.compile(r"^(\([^)]*\) )?([A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] )?")


class ServerFailedError(FoundryError):
    """A server did not start, or ended by itself."""


@dataclass(frozen=True)
class ServerCommand:
    """A program that serves.

    Args:
        title: what it is, for errors.
        variables: of its environment, beside those of this process; written to a file, no secrets.
        url: base URL of its API.
        health: URL that answers 200 once it is ready.
        remedy: what to do where memory was short.
    """

    title: str
    command: Sequence[str]
    variables: Mapping[str, str]
    url: str
    health: str
    remedy: str = _REMEDY

    def is_ready(self) -> bool:
        health = urlsplit(self.health)
        connection = http.client.HTTPConnection(health.netloc, timeout=_HEALTH_TIMEOUT_SECONDS)
        try:
            connection.request("GET", health.path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


@dataclass(frozen=True)
class RunningServer:
    """A running server.

    `log`: where it writes. `process`: the driver, which ends with the server, and the server with
    it.
    """

    command: ServerCommand
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Its base URL."""
        return self.command.url

    def wait(self) -> None:
        """Wait until it ends; always raises `ServerFailedError`, with the reason and the log."""
        raise self.failure(self.process.wait())

    def failure(self, code: int) -> ServerFailedError:
        """The error for an exit code."""
        reason = exit_reason(code, self.log, self.command.remedy)
        if _ENGINE_FAILED in reason:
            exceptions = _ENGINE_EXCEPTION.findall(self.log.read_text("utf-8", "replace"))
            reason = f"its engine ended with {exceptions[0]}" if exceptions else reason
        return ServerFailedError(f"{self.command.title} is not serving: {reason} (log: {self.log})")


@contextmanager
def run_server(
    command: ServerCommand, folder: Path, starting: Callable[[str], object]
) -> Iterator[RunningServer]:
    """A server that is ready; leaving the context ends it.

    `folder`: absolute; its log is written there. `starting`: called with the newest line of its log
    until it is ready; what it raises ends it. Raises `ServerFailedError`: the server ended.
    """
    job, log = folder / _COMMAND, folder / DRIVER_LOG
    content = {"command": list(command.command), "variables": dict(command.variables)}
    atomic_write(job, json.dumps(content))
    log.unlink(missing_ok=True)
    with supervised_driver(_MODULE, job, {}, _GRACE_SECONDS) as process:
        server = RunningServer(command, log, process)
        while not command.is_ready():
            if (code := process.poll()) is not None:
                raise server.failure(code)
            starting(newest_line(log))
            time.sleep(_POLL_SECONDS)
        yield server


def newest_line(log: Path) -> str:
    """The last line of a log, without time and source; empty where there is none."""
    lines = re.split(r"[\r\n]+", log_tail(log, _TAIL_BYTES).strip())
    return _PREFIX.sub("", lines[-1]).strip()


def main(file: Path) -> int:
    prepare_driver()
    job = json.loads(file.read_bytes())
    with program_of_driver(job["command"], job["variables"], file.parent / DRIVER_LOG) as server:
        code = server.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
