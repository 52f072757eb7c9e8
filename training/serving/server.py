"""A vLLM server of our own: started, awaited, and ended with whoever started it."""

import fcntl
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

from ..environments import ensure_environment, gpus
from ..launch import TrainerJob
from ..launch.driver import DRIVER_LOG
from ..launch.failures import why_it_ended
from ..launch.supervisor import supervised_driver
from .command import ServerSettings, vllm_command, vllm_variables
from .job import DRIVER, ServerJob
from .models import ServableAgent
from .profile import url_of

_GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0
_TAIL_BYTES = 4096
_REMEDY = "give it more memory or --gpus, or a smaller --max-length"
# Its engine's exceptions are logged; the server that waits for it only says that there was one.
_ENGINE_FAILED = "Engine core initialization failed"
_ENGINE_RAISED = re.compile(
    r"^\([^)]*\) ERROR [^\]]*\] ((?:\w+\.)*\w*(?:Error|Exception)\b.*)$", re.M
)
# What vLLM writes before each line: process, level, time and place.
_PREFIX = re.compile(r"^(\([^)]*\) )?([A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] )?")


class ServerFailed(FoundryError):  # noqa: N818 - it names an outcome
    """A server did not start, or ended by itself."""


@dataclass(frozen=True)
class VllmServer:
    """A server that was started.

    Args:
        url: its base URL.
        log: where vLLM writes.
        process: the driver, which ends with vLLM, and vLLM with it.
    """

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def wait(self) -> None:
        """Until it ends.

        Raises:
            ServerFailed: it did; one line and its log.
        """
        raise self.failure(self.process.wait())

    def failure(self, code: int) -> ServerFailed:
        """What an end with this code means."""
        reason = _why(code, self.log)
        return ServerFailed(f"vLLM is not serving: {reason} (log: {self.log})")


@contextmanager
def serve(
    model: ServableAgent,
    settings: ServerSettings,
    home: Home,
    announce: Callable[[str], object],
    starting: Callable[[str], object] = lambda line: None,
) -> Iterator[VllmServer]:
    """A server that answers; leaving the context, or the end of this process, ends it.

    Args:
        home: where its log is.
        announce: is told when its environment is being made.
        starting: is told the newest line of its log until it answers.

    Raises:
        ServerFailed: the port is taken, there are fewer GPUs, or vLLM ended.
        FoundryError: its environment cannot be made.
    """
    _check_gpus(settings)
    with _alone(home.local / "serving" / str(settings.port), settings) as folder:
        python = ensure_environment("agents", "gpu" if settings.gpus else "cpu", announce)
        job = _job(python, folder, model, settings)
        log = folder / DRIVER_LOG
        log.unlink(missing_ok=True)
        with supervised_driver(job.module, job.write(), {}, _GRACE_SECONDS) as process:
            server = VllmServer(url_of(settings), log, process)
            _wait_for_answers(server, settings, starting)
            yield server


def _job(python: Path, folder: Path, model: ServableAgent, settings: ServerSettings) -> TrainerJob:
    command = vllm_command(python, model, settings)
    payload = ServerJob(command=command, variables=vllm_variables(model))
    return TrainerJob(
        name=model.name, module=DRIVER, folder=folder, payload=payload.model_dump(mode="json")
    )


def _check_gpus(settings: ServerSettings) -> None:
    if settings.gpus > gpus():
        raise ServerFailed(
            f"there are {gpus()} GPUs here, not {settings.gpus}; --gpus 0 serves on the CPU"
        )


@contextmanager
def _alone(folder: Path, settings: ServerSettings) -> Iterator[Path]:
    """The folder of the one server of this port.

    Raises:
        ServerFailed: something listens there, or another server of ours is about to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "server.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _check_free(settings)
        except OSError as error:
            raise ServerFailed(
                f"cannot listen on port {settings.port} of {settings.host}: it is in use, or not "
                "ours; choose another with --port"
            ) from error
        yield folder.absolute()


def _check_free(settings: ServerSettings) -> None:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((settings.host, settings.port))


def _wait_for_answers(
    server: VllmServer, settings: ServerSettings, starting: Callable[[str], object]
) -> None:
    while not _answers(settings):
        if (code := server.process.poll()) is not None:
            raise server.failure(code)
        starting(newest_line(server.log))
        time.sleep(_POLL_SECONDS)


def _answers(settings: ServerSettings) -> bool:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    connection = http.client.HTTPConnection(host, settings.port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _why(code: int, log: Path) -> str:
    reason = why_it_ended(code, log, _REMEDY)
    if _ENGINE_FAILED in reason:
        raised = _ENGINE_RAISED.findall(log.read_text("utf-8", "replace"))
        return f"its engine ended with {raised[0]}" if raised else reason
    return reason


def newest_line(log: Path) -> str:
    """The last line of a log, without when and where it was written; empty before there is one."""
    if not log.is_file():
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = re.split(r"[\r\n]+", stream.read().decode("utf-8", "replace").strip())
    return _PREFIX.sub("", lines[-1]).strip()
