"""A server as a child process: starts it, waits until it is ready, and ends it."""

import http.client
import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from schemas import FoundryError
from warehouse import Home
from warehouse.atomic import atomic_write
from warehouse.file_lock import exclusive_lock

from ..environments import ensure_environment, gpus
from . import driver
from .processes import DRIVER_LOG, exit_reason, log_tail, supervised_driver
from .vllm import ServableAgent, ServerSettings, vllm_command, vllm_variables

_GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.5
_HEALTH_TIMEOUT_SECONDS = 5.0
_TAIL_BYTES = 4096
_COMMAND = "command.json"
_REMEDY = "give it more memory or --gpus, or a smaller --max-length"
_MANAGED_REMEDY = "give it more `gpus` or `memory` in the profile, or a smaller `max_length`"
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
    remedy: str = _MANAGED_REMEDY

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

    Args:
        log: where it writes.
        process: the driver, which ends with the server, and the server with it.
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
def serve(
    model: ServableAgent,
    settings: ServerSettings,
    home: Home,
    announce: Callable[[str], object],
    starting: Callable[[str], object] = lambda line: None,
) -> Iterator[RunningServer]:
    """vLLM, ready; leaving the context, or the end of this process, ends it.

    Args:
        home: its log is written below it.
        announce: called with a line when its environment is being installed.
        starting: called with the newest line of its log until it is ready.

    Raises:
        ServerFailedError: the port is taken, there are fewer GPUs, or vLLM ended.
        FoundryError: its environment cannot be installed.
    """
    if settings.gpus > gpus():
        raise ServerFailedError(
            f"there are {gpus()} GPUs here, not {settings.gpus}; --gpus 0 serves on the CPU"
        )
    with _reserved_port(home.local / "serving" / str(settings.port), settings) as folder:
        python = ensure_environment("agents", "gpu" if settings.gpus else "cpu", announce)
        arguments, variables = vllm_command(python, model, settings), vllm_variables(python, model)
        health = f"{settings.local_url}/health"
        command = ServerCommand("vLLM", arguments, variables, settings.url, health, _REMEDY)
        with run_server(command, folder, starting) as server:
            yield server


@contextmanager
def run_server(
    command: ServerCommand, folder: Path, starting: Callable[[str], object]
) -> Iterator[RunningServer]:
    """A server that is ready; `starting`: see `serve`; what it raises ends the server.

    Args:
        folder: absolute; its log is written there.

    Raises:
        ServerFailedError: the server ended.
    """
    job, log = folder / _COMMAND, folder / DRIVER_LOG
    content = {"command": list(command.command), "variables": dict(command.variables)}
    atomic_write(job, json.dumps(content))
    log.unlink(missing_ok=True)
    with supervised_driver(driver.__name__, job, {}, _GRACE_SECONDS) as process:
        server = RunningServer(command, log, process)
        while not command.is_ready():
            if (code := process.poll()) is not None:
                raise server.failure(code)
            starting(newest_line(log))
            time.sleep(_POLL_SECONDS)
        yield server


@contextmanager
def _reserved_port(folder: Path, settings: ServerSettings) -> Iterator[Path]:
    """The working folder of the port's only server: nothing listens there, none of ours starts."""
    folder.mkdir(parents=True, exist_ok=True)
    in_use = ServerFailedError(
        f"cannot listen on port {settings.port} of {settings.host}: it is in use, or not allowed; "
        "choose another with --port"
    )
    with exclusive_lock(folder / "server.lock", in_use):
        try:
            _check_free(settings)
        except OSError as error:
            raise in_use from error
        yield folder.absolute()


def _check_free(settings: ServerSettings) -> None:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((settings.host, settings.port))


def newest_line(log: Path) -> str:
    """The last line of a log, without time and source; empty where there is none."""
    lines = re.split(r"[\r\n]+", log_tail(log, _TAIL_BYTES).strip())
    return _PREFIX.sub("", lines[-1]).strip()
