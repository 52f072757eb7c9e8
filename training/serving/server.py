"""A vLLM server as a child process: starts it, waits until it is ready, and ends it."""

import http.client
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from schemas import FoundryError
from warehouse import Home
from warehouse.file_lock import exclusive_lock

from ..environments import ensure_environment, gpus
from ..launch.driver import DRIVER_LOG
from ..launch.failures import exit_reason
from ..launch.jobs import TrainerJob
from ..launch.supervisor import supervised_driver
from . import driver
from .command import ServerSettings, vllm_command, vllm_variables
from .models import ServableAgent

_GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.5
_HEALTH_TIMEOUT_SECONDS = 5.0
_TAIL_BYTES = 4096
_REMEDY = "give it more memory or --gpus, or a smaller --max-length"
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
class VllmServer:
    """A running server.

    Args:
        url: its base URL.
        log: where vLLM writes.
        process: the driver, which ends with vLLM, and vLLM with it.
    """

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def wait(self) -> None:
        """Wait until it ends.

        Raises:
            ServerFailedError: always; the reason in one line and its log.
        """
        raise self.failure(self.process.wait())

    def failure(self, code: int) -> ServerFailedError:
        """The error for an exit code."""
        reason = _exit_reason(code, self.log)
        return ServerFailedError(f"vLLM is not serving: {reason} (log: {self.log})")


@contextmanager
def serve(
    model: ServableAgent,
    settings: ServerSettings,
    home: Home,
    announce: Callable[[str], object],
    starting: Callable[[str], object] = lambda line: None,
) -> Iterator[VllmServer]:
    """A server that is ready; leaving the context, or the end of this process, ends it.

    Args:
        home: its log is written below it.
        announce: called with a line when its environment is being installed.
        starting: called with the newest line of its log until it is ready.

    Raises:
        ServerFailedError: the port is taken, there are fewer GPUs, or vLLM ended.
        FoundryError: its environment cannot be installed.
    """
    _check_gpus(settings)
    with _reserved_port(home.local / "serving" / str(settings.port), settings) as folder:
        python = ensure_environment("agents", "gpu" if settings.gpus else "cpu", announce)
        job = _job(python, folder, model, settings)
        log = folder / DRIVER_LOG
        log.unlink(missing_ok=True)
        with supervised_driver(job.module, job.write(), {}, _GRACE_SECONDS) as process:
            server = VllmServer(settings.url, log, process)
            _wait_until_ready(server, settings, starting)
            yield server


def _job(python: Path, folder: Path, model: ServableAgent, settings: ServerSettings) -> TrainerJob:
    command = vllm_command(python, model, settings)
    payload = driver.ServerJob(command=command, variables=vllm_variables(model))
    return TrainerJob(
        name=model.name,
        module=driver.__name__,
        folder=folder,
        payload=payload.model_dump(mode="json"),
    )


def _check_gpus(settings: ServerSettings) -> None:
    if settings.gpus > gpus():
        raise ServerFailedError(
            f"there are {gpus()} GPUs here, not {settings.gpus}; --gpus 0 serves on the CPU"
        )


@contextmanager
def _reserved_port(folder: Path, settings: ServerSettings) -> Iterator[Path]:
    """The working folder of this port's only server.

    Raises:
        ServerFailedError: something listens there, or another server of ours is starting.
    """
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


def _wait_until_ready(
    server: VllmServer, settings: ServerSettings, starting: Callable[[str], object]
) -> None:
    while not _is_ready(settings):
        if (code := server.process.poll()) is not None:
            raise server.failure(code)
        starting(newest_line(server.log))
        time.sleep(_POLL_SECONDS)


def _is_ready(settings: ServerSettings) -> bool:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    connection = http.client.HTTPConnection(host, settings.port, timeout=_HEALTH_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _exit_reason(code: int, log: Path) -> str:
    reason = exit_reason(code, log, _REMEDY)
    if _ENGINE_FAILED in reason:
        exceptions = _ENGINE_EXCEPTION.findall(log.read_text("utf-8", "replace"))
        return f"its engine ended with {exceptions[0]}" if exceptions else reason
    return reason


def newest_line(log: Path) -> str:
    """The last line of a log, without time and source; empty where there is none."""
    if not log.is_file():
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = re.split(r"[\r\n]+", stream.read().decode("utf-8", "replace").strip())
    return _PREFIX.sub("", lines[-1]).strip()
