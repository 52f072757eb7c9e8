"""Supervisor of a server that a home's processes share: starts it, and stops it when it is idle.

`python -m training.serving.managed FOLDER` puts itself in the background. It claims the server's
GPUs, waits until it is ready, and stops it when it has not been used for `idle_seconds`, soon after
the last process that used it has ended, between two calls where somebody else waits for its GPUs,
and when it is told to (SIGTERM). If this process is killed, its driver sees the end of standard
input and ends the server.
"""

import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from inference.servers.gpus import claimed_gpus, is_wanted, visible_devices
from inference.servers.instance import LEASE, SUPERVISOR_LOCK, USERS, ServerFolder
from inference.servers.settings import (
    AgentServer,
    CommandServer,
    ImageServer,
    ServerSpec,
    ServerState,
)
from schemas import FoundryError
from warehouse import Home
from warehouse.file_lock import HeldLock, try_lock

from ..environments import ensure_environment, gpus
from ..launch.supervisor import DRIVER_LOG, exit_on_signal
from .agents import ServerSettings, find_model, vllm_command, vllm_variables
from .server import RunningServer, ServerCommand, ServerFailedError, run_server

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.5
_LOCK_SECONDS = 2.0  # while others look whether it is held
# A server that is still starting is given up when nobody has waited for it for so long.
_ABANDONED_SECONDS = 10.0
# One that is ready is stopped so long after the last process that used it.
_ORPHANED_SECONDS = 30.0
_KEYS = {
    "agents": "VLLM_API_KEY",
    "images": "INTERLEAVE_IMAGES_KEY",
    "command": "INTERLEAVE_SERVER_KEY",
}


class _AbandonedError(Exception):
    """Nobody waits for the server any more."""


@dataclass
class Supervisor:
    """One server, from its GPUs' claim to its end."""

    folder: ServerFolder
    spec: ServerSpec
    used_at: float = field(default_factory=time.monotonic)
    stopping: HeldLock | None = None

    def run(self) -> None:
        """Raises FoundryError where the server cannot be started, or ends by itself."""
        settings, name = self.spec.settings, f"server {self.spec.name} of {self.spec.root}"
        self._write("waiting")
        try:
            with claimed_gpus(settings.gpus, settings.memory, name, self._wait_for_gpus):
                self._serve()
        except _AbandonedError:
            pass
        finally:
            self._write("stopping")

    def _serve(self) -> None:
        settings = self.spec.settings
        if missing := [gpu for gpu in settings.gpus if gpu >= gpus()]:
            raise ServerFailedError(
                f"this machine has {gpus()} GPUs, and it is to take GPU {missing[0]}: change "
                f"`servers.{self.spec.name}.gpus`"
            )
        self._write("starting")
        # Not among the command's variables: those are written to a file.
        os.environ[_KEYS[settings.kind]] = self.folder.key()
        command = server_command(self.spec, settings.port or _free_port())
        with run_server(command, self.folder.path, self._starting) as server:
            self._write("ready", url=command.url)
            self._watch(server)

    def _watch(self, server: RunningServer) -> None:
        """Return when the server is to stop; it is not leased then, and not before its end."""
        self.used_at = time.monotonic()
        while (code := server.process.poll()) is None:
            is_idle = self._unused_seconds() > self._patience()
            if (is_idle or is_wanted(self.spec.settings.gpus)) and self._take_lease():
                return
            time.sleep(_POLL_SECONDS)
        raise server.failure(code)

    def _patience(self) -> float:
        """Seconds without a call after which it is stopped."""
        idle_seconds = self.spec.settings.idle_seconds
        if lock := try_lock(self.folder.path / USERS):
            lock.release()
            return min(idle_seconds, _ORPHANED_SECONDS)
        return idle_seconds

    def _wait_for_gpus(self, note: str) -> None:
        self._note(note)
        self._raise_if_abandoned()

    def _starting(self, line: str) -> None:
        self._raise_if_abandoned()
        limit = self.spec.settings.start_seconds
        if time.time() - self._note(line) > limit:
            log = self.folder.path / DRIVER_LOG
            raise ServerFailedError(f"it is not ready after {limit:g} s: {line} (log: {log})")

    def _note(self, note: str) -> float:
        """Note what it waits for; returns since when it does."""
        state = self.folder.state()
        assert state is not None  # it is this process's
        if state.note != note:
            self.folder.write(state.model_copy(update={"note": note}))
        return state.since

    def _raise_if_abandoned(self) -> None:
        if self._unused_seconds() > _ABANDONED_SECONDS and self._take_lease():
            raise _AbandonedError

    def _unused_seconds(self) -> float:
        if lock := try_lock(self.folder.path / LEASE):
            lock.release()
            return time.monotonic() - self.used_at
        self.used_at = time.monotonic()
        return 0.0

    def _take_lease(self) -> bool:
        """Keep users out until this process ends; False: there is one."""
        self.stopping = self.stopping or try_lock(self.folder.path / LEASE)
        return self.stopping is not None

    def _write(self, state: str, **fields: str) -> None:
        values = {"state": state, "since": time.time(), "pid": os.getpid(), **fields}
        self.folder.write(ServerState.model_validate(values))

    def fail(self, reason: str) -> None:
        self._write("failed", note=reason)


def server_command(spec: ServerSpec, port: int) -> ServerCommand:
    """The program that serves; FoundryError: no such model, or no environment for it."""
    settings, base = spec.settings, f"http://{_HOST}:{port}"
    url, health = f"{base}/v1", f"{base}/health"
    devices = {"CUDA_VISIBLE_DEVICES": visible_devices(settings.gpus)}
    match settings:
        case AgentServer():
            command, variables = _vllm(spec, settings, port)
            return ServerCommand("vLLM", command, variables | devices, url, health)
        case ImageServer():
            module = [sys.executable, "-m", "inference.images_server"]
            replicas = {"replicas": max(1, len(settings.gpus)), "port": port}
            device = {"device": "cuda" if settings.gpus else "cpu"}
            options = {"batch": settings.batch, "queue": settings.queue, **replicas, **device}
            arguments = [spec.model, str(settings.registry or "")]
            arguments += [f"{name}={value}" for name, value in options.items()]
            command = [*module, *arguments]
            return ServerCommand("the images server", command, devices, url, f"{base}/ready")
        case CommandServer():
            command = [part.replace("{port}", str(port)) for part in settings.command]
            return ServerCommand(command[0], command, devices, url, f"{base}{settings.health}")


def _vllm(spec: ServerSpec, settings: AgentServer, port: int) -> tuple[list[str], dict[str, str]]:
    model = find_model(spec.model, Home(spec.root), settings.revision)
    chosen = ServerSettings(
        port=port,
        gpus=len(settings.gpus),
        tensor_parallel=settings.tensor_parallel,
        memory=settings.memory,
        max_length=settings.max_length,
        flags=settings.flags,
    )
    python = ensure_environment("agents", "gpu" if settings.gpus else "cpu")
    return vllm_command(python, model, chosen), vllm_variables(model)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def main(argv: list[str]) -> int:
    """Supervise the server of a folder, unless another process does; returns the exit code."""
    folder = ServerFolder(Path(argv[0]))
    deadline = time.monotonic() + _LOCK_SECONDS
    while (lock := try_lock(folder.path / SUPERVISOR_LOCK)) is None:
        if time.monotonic() > deadline:
            return 0
        time.sleep(_POLL_SECONDS / 10)
    # In the background and nobody's child: the process that started this one may be a training,
    # whose end takes all its children with it. The lock goes with the copy that stays.
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, exit_on_signal)
    supervisor = Supervisor(folder, folder.spec)
    try:
        supervisor.run()
    except FoundryError as error:
        supervisor.fail(str(error))
        return 1
    except Exception as error:
        supervisor.fail(f"{type(error).__name__}: {error}")
        raise
    finally:
        lock.release()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
