"""Supervisor of a server that a home's processes share: starts it, and stops it when it is idle.

`python -m inference.servers.supervisor FOLDER` puts itself in the background, or is a job of a Ray
cluster. It claims the server's GPUs, waits until it is ready, and stops it when it has not been
used for `idle_seconds`, soon after the last process that used it has ended, between two calls where
somebody else waits for its GPUs, and when it is told to (SIGTERM). If this process is killed, its
driver sees the end of standard input and ends the server.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from schemas import FoundryError, StorageError
from schemas.views import SERVER_HOURS, ServerHoursRow
from warehouse import Home

from .hosts import Held
from .instance import LEASE, USERS, ServerInstance
from .processes import DRIVER_LOG, exit_on_signal
from .ray_jobs import free_port
from .server_process import RunningServer, ServerCommand, ServerFailedError, run_server
from .settings import AgentServer, CommandServer, ImageServer, ServerSpec, ServerState
from .vllm import Address, find_model, vllm_server

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

_BEAT_SECONDS = 60.0

_log = logging.getLogger(__name__)


class _AbandonedError(Exception):
    """Nobody waits for the server any more."""


@dataclass
class Supervisor:
    """One server, from its GPUs' claim to its end."""

    server: ServerInstance
    used_at: float = field(default_factory=time.monotonic)
    stopping: Held | None = None

    def run(self) -> None:
        """Raises FoundryError where the server cannot be started, or ends by itself."""
        spec = self.server.spec
        name = f"server {spec.name} of {spec.root}"
        self._write("waiting")
        try:
            with self.server.host.claimed(name, self._wait_for_gpus), recorded_gpu_hours(spec):
                self._serve()
        except _AbandonedError:
            pass
        finally:
            self._write("stopping")

    def _serve(self) -> None:
        self._write("starting")
        # Not among the command's variables: those are written to a file.
        os.environ[_KEYS[self.server.spec.settings.kind]] = self.server.key()
        host = self.server.host
        command = server_command(self.server.spec, host.address, host.variables)
        with run_server(command, self.server.path, self._starting) as server:
            self._write("ready", url=command.url)
            self._watch(server)

    def _watch(self, server: RunningServer) -> None:
        """Return when the server is to stop; it is not leased then, and not before its end."""
        self.used_at = time.monotonic()
        while (code := server.process.poll()) is None:
            unused = self._unused_seconds()
            is_due = unused and (unused > self._patience() or self.server.host.is_wanted())
            if is_due and self._take_lease():
                return
            time.sleep(_POLL_SECONDS)
        raise server.failure(code)

    def _patience(self) -> float:
        """Seconds without a call after which it is stopped."""
        idle_seconds = self.server.spec.settings.idle_seconds
        has_users = not self.server.host.locks.is_free(self.server.path / USERS)
        return idle_seconds if has_users else min(idle_seconds, _ORPHANED_SECONDS)

    def _wait_for_gpus(self, note: str) -> None:
        self._note(note)
        self._raise_if_abandoned()

    def _starting(self, line: str) -> None:
        self._raise_if_abandoned()
        limit = self.server.spec.settings.start_seconds
        if time.time() - self._note(line) > limit:
            log = self.server.path / DRIVER_LOG
            raise ServerFailedError(f"it is not ready after {limit:g} s: {line} (log: {log})")

    def _note(self, note: str) -> float:
        """Note what it waits for; returns since when it does."""
        state = self.server.state()
        assert state is not None  # it is this process's
        if state.note != note:
            self.server.write(state.model_copy(update={"note": note}))
        return state.since

    def _raise_if_abandoned(self) -> None:
        if self._unused_seconds() > _ABANDONED_SECONDS and self._take_lease():
            raise _AbandonedError

    def _unused_seconds(self) -> float:
        if self.server.host.locks.is_free(self.server.path / LEASE):
            return time.monotonic() - self.used_at
        self.used_at = time.monotonic()
        return 0.0

    def _take_lease(self) -> bool:
        """Keep users out until this process ends; False: there is one."""
        locks = self.server.host.locks
        self.stopping = self.stopping or locks.try_lock(self.server.path / LEASE)
        return self.stopping is not None

    def _write(self, state: str, **fields: str) -> None:
        values = {"state": state, "since": time.time(), "pid": os.getpid(), **fields}
        self.server.write(ServerState.model_validate(values))

    def fail(self, reason: str) -> None:
        self._write("failed", note=reason)


def server_command(spec: ServerSpec, host: str, devices: Mapping[str, str]) -> ServerCommand:
    """The program that serves; FoundryError: no such model, or no environment for it.

    `host`: address on which it listens. `devices`: variables that tell it which GPUs are its own.
    """
    settings = spec.settings
    port = settings.port or free_port(host)
    base = f"http://{host}:{port}"
    match settings:
        case AgentServer():
            model = find_model(spec.model, Home(spec.root), settings.revision)
            model = replace(model, name=spec.served_as or model.name)
            command = vllm_server(model, settings, Address(host, port))
            return replace(command, variables={**command.variables, **devices})
        case ImageServer():
            options = settings.model_dump(include={"batch", "queue", "offload"}) | {
                "replicas": max(1, len(settings.gpus)),
                "host": host,
                "port": port,
                "device": "cuda" if settings.gpus else "cpu",
            }
            words = [sys.executable, "-m", "inference.images_server.app", spec.model]
            words.append(str(settings.registry or ""))
            words += [f"{name}={value}" for name, value in options.items()]
            title, health = "the images server", "/ready"
        case CommandServer():
            parts = (part.replace("{port}", str(port)) for part in settings.command)
            words = [part.replace("{host}", host) for part in parts]
            title, health = words[0], settings.health
    return ServerCommand(title, words, devices, f"{base}/v1", f"{base}{health}")


@contextmanager
def recorded_gpu_hours(spec: ServerSpec) -> Iterator[None]:
    """Inside, the server holds its GPUs; its hours are in table `server_hours` while it runs.

    A run is a partition of its own, which each sign of life replaces: nothing is counted twice, and
    of a supervisor that is killed at most a minute is missing. A lake that cannot be written stops
    no server. A server without GPUs is not recorded.
    """
    if not spec.settings.gpus:
        yield
        return
    started_at, since, ended = datetime.now(UTC), time.monotonic(), threading.Event()
    run_id = f"{started_at:%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"

    def record() -> None:
        # The length is measured by a clock that nobody sets.
        now = started_at + timedelta(seconds=time.monotonic() - since)
        try:
            rows = server_hours(spec, run_id, started_at, now)
            Home(spec.root).lake.write(SERVER_HOURS, rows, run_id)
        except StorageError as error:
            _log.warning("GPU hours of server %s are not recorded: %s", spec.name, error)

    def beat() -> None:
        record()
        while not ended.wait(_BEAT_SECONDS):
            record()

    # A thread: a slow store must not keep the supervisor from its server.
    beating = threading.Thread(target=beat, name="gpu-hours", daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        record()


def server_hours(
    spec: ServerSpec, run_id: str, start: datetime, end: datetime
) -> list[ServerHoursRow]:
    """One run of a server, a row a day."""
    gpus, price = spec.settings.reserved_gpus, spec.settings.gpu_hour_usd
    rows: list[ServerHoursRow] = []
    while not rows or start < end:
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        hours = gpus * ((min(end, midnight) - start) / timedelta(hours=1))
        rows.append(
            ServerHoursRow(
                run_id=run_id,
                day=start.date(),
                server=spec.name,
                model=spec.ledger_name,
                started_at=start,
                ended_at=min(end, midnight),
                gpus=gpus,
                gpu_hours=hours,
                cost_usd=None if price is None else price * hours,
            )
        )
        start = midnight
    return rows


def main(argv: list[str]) -> int:
    """Supervise the server of a folder, unless another process does; returns the exit code."""
    server = ServerInstance.at(Path(argv[0]))
    deadline = time.monotonic() + _LOCK_SECONDS
    while (lock := server.take_supervision()) is None:
        if time.monotonic() > deadline:
            return 0
        time.sleep(_POLL_SECONDS / 10)
    signal.signal(signal.SIGTERM, exit_on_signal)
    server.host.enter()
    supervisor = Supervisor(server)
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
