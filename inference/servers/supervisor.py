"""Supervisor of a server that a home's processes share: starts it, and stops it when it is idle.

`python -m inference.servers.supervisor FOLDER` puts itself in the background, or is a job of a Ray
cluster. It claims the server's GPUs, waits until it is ready, and stops it when it has not been
used for `idle_seconds`, soon after the last process that used it has ended, between two calls where
somebody else waits for its GPUs, and when it is told to (SIGTERM). If this process is killed, its
driver sees the end of standard input and ends the server.
"""

import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from schemas import FoundryError
from warehouse import Home

from ..environments import ensure_environment
from .gpu_hours import recorded_gpu_hours
from .instance import LEASE, USERS, ServerFolder
from .placement import Placement, RayNode, ThisMachine, leave_job
from .processes import DRIVER_LOG, exit_on_signal
from .server_process import RunningServer, ServerCommand, ServerFailedError, run_server
from .settings import AgentServer, CommandServer, ImageServer, ServerSpec, ServerState
from .supervisors import Held
from .vllm import ServerSettings, find_model, vllm_command, vllm_variables

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
    placement: Placement
    used_at: float = field(default_factory=time.monotonic)
    stopping: Held | None = None

    def run(self) -> None:
        """Raises FoundryError where the server cannot be started, or ends by itself."""
        name = f"server {self.spec.name} of {self.spec.root}"
        self._write("waiting")
        try:
            with self.placement.claimed(name, self._wait_for_gpus), recorded_gpu_hours(self.spec):
                self._serve()
        except _AbandonedError:
            pass
        finally:
            self._write("stopping")

    def _serve(self) -> None:
        self._write("starting")
        # Not among the command's variables: those are written to a file.
        os.environ[_KEYS[self.spec.settings.kind]] = self.folder.key()
        command = server_command(self.spec, self.placement)
        with run_server(command, self.folder.path, self._starting) as server:
            self._write("ready", url=command.url)
            self._watch(server)

    def _watch(self, server: RunningServer) -> None:
        """Return when the server is to stop; it is not leased then, and not before its end."""
        self.used_at = time.monotonic()
        while (code := server.process.poll()) is None:
            unused = self._unused_seconds()
            is_due = unused and (unused > self._patience() or self.placement.is_wanted())
            if is_due and self._take_lease():
                return
            time.sleep(_POLL_SECONDS)
        raise server.failure(code)

    def _patience(self) -> float:
        """Seconds without a call after which it is stopped."""
        idle_seconds = self.spec.settings.idle_seconds
        has_users = not self.folder.host.locks.is_free(self.folder.path / USERS)
        return idle_seconds if has_users else min(idle_seconds, _ORPHANED_SECONDS)

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
        if self.folder.host.locks.is_free(self.folder.path / LEASE):
            return time.monotonic() - self.used_at
        self.used_at = time.monotonic()
        return 0.0

    def _take_lease(self) -> bool:
        """Keep users out until this process ends; False: there is one."""
        locks = self.folder.host.locks
        self.stopping = self.stopping or locks.try_lock(self.folder.path / LEASE)
        return self.stopping is not None

    def _write(self, state: str, **fields: str) -> None:
        values = {"state": state, "since": time.time(), "pid": os.getpid(), **fields}
        self.folder.write(ServerState.model_validate(values))

    def fail(self, reason: str) -> None:
        self._write("failed", note=reason)


def server_command(spec: ServerSpec, placement: Placement) -> ServerCommand:
    """The program that serves; FoundryError: no such model, or no environment for it."""
    settings, host = spec.settings, placement.host
    port = settings.port or _free_port(host)
    base, devices = f"http://{host}:{port}", placement.variables
    url, health = f"{base}/v1", f"{base}/health"
    match settings:
        case AgentServer():
            command, variables = _vllm(spec, settings, host, port)
            return ServerCommand("vLLM", command, {**variables, **devices}, url, health)
        case ImageServer():
            module = [sys.executable, "-m", "inference.images_server"]
            replicas = {"replicas": max(1, len(settings.gpus)), "host": host, "port": port}
            device = {"device": "cuda" if settings.gpus else "cpu"}
            options = settings.model_dump(include={"batch", "queue", "offload"})
            options |= replicas | device
            arguments = [spec.model, str(settings.registry or "")]
            arguments += [f"{name}={value}" for name, value in options.items()]
            command = [*module, *arguments]
            return ServerCommand("the images server", command, devices, url, f"{base}/ready")
        case CommandServer():
            parts = (part.replace("{port}", str(port)) for part in settings.command)
            command = [part.replace("{host}", host) for part in parts]
            return ServerCommand(command[0], command, devices, url, f"{base}{settings.health}")


def _vllm(
    spec: ServerSpec, settings: AgentServer, host: str, port: int
) -> tuple[list[str], dict[str, str]]:
    model = find_model(spec.model, Home(spec.root), settings.revision)
    model = replace(model, name=spec.served_as or model.name)
    chosen = ServerSettings(
        host=host,
        port=port,
        gpus=len(settings.gpus),
        tensor_parallel=settings.tensor_parallel,
        memory=settings.memory,
        max_length=settings.max_length,
        flags=settings.flags,
    )
    python = ensure_environment("agents", "gpu" if settings.gpus else "cpu")
    return vllm_command(python, model, chosen), vllm_variables(python, model)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def main(argv: list[str]) -> int:
    """Supervise the server of a folder, unless another process does; returns the exit code."""
    folder = ServerFolder.at(Path(argv[0]))
    deadline = time.monotonic() + _LOCK_SECONDS
    while (lock := folder.take_supervision()) is None:
        if time.monotonic() > deadline:
            return 0
        time.sleep(_POLL_SECONDS / 10)
    signal.signal(signal.SIGTERM, exit_on_signal)
    supervisor = Supervisor(folder, folder.spec, _placement(folder.spec))
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


def _placement(spec: ServerSpec) -> Placement:
    if spec.settings.ray:
        leave_job()
        return RayNode(spec.settings.ray, spec.settings)
    # In the background and nobody's child: the process that started this one may be a training,
    # whose end takes all its children with it. The lock goes with the copy that stays.
    if os.fork():
        os._exit(0)
    return ThisMachine(spec.name, spec.settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
