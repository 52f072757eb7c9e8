"""A server of a home: its supervisor is started on first use, and users hold leases.

Everything about it is in a folder below `servers/`: `server.json` (what is served), `state.json`,
logs and locks. Calls lock `lease` shared; the supervisor locks it exclusively before it stops the
server. A process that has used the server locks `users` shared as long as it lives. The supervisor
holds `supervisor`.

A server is on this machine, or on a node of a Ray cluster whose nodes share the folder: then the
supervisor is a job of the cluster, and locks are heartbeats.
"""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from warehouse import Home
from warehouse.atomic import atomic_write

from ..calls.hashing import content_digest
from ..roles import BackendError
from .ray_jobs import RayHost
from .settings import ServerSpec, ServerState
from .supervisors import Held, LocalHost, SupervisorHost

SUPERVISOR = "inference.servers.supervisor"  # a process of its own, which imports this one
SUPERVISOR_LOCK, LEASE, USERS = "supervisor", "lease", "users"
_TAKING = "supervisor-start"
_SPEC, _STATE, _KEY = "server.json", "state.json", "key"
_POLL_SECONDS = 0.2
_STARTS = 3
_CONNECT_SECONDS = 5.0
_UNREACHABLE_SECONDS = 300.0  # longer than it takes until a dead node's server counts as dead

_log = logging.getLogger(__name__)

# Of the servers that this process has used; freed by its end.
_uses: dict[Path, Held] = {}


@dataclass(frozen=True)
class Lease:
    """A server that is ready, and is not stopped before `release`.

    Args:
        key: its API key.
    """

    url: str
    key: str = field(repr=False)
    folder: "ServerFolder" = field(repr=False)
    supervisor: int = field(repr=False)
    lock: Held = field(repr=False)

    @property
    def is_valid(self) -> bool:
        """Whether the server that was leased still runs, as far as its state says."""
        state = self.folder.state()
        return state is not None and (state.pid, state.url) == (self.supervisor, self.url)

    async def is_reachable(self) -> bool:
        """Whether it accepts connections: of a dead node nothing else says so at once."""
        return await _accepts(self.url)

    def release(self) -> None:
        self.lock.release()


@dataclass(frozen=True)
class ServerFolder:
    """The files of one server.

    Args:
        host: where its supervisor runs.
    """

    path: Path
    host: SupervisorHost

    @classmethod
    def of(cls, path: Path, spec: ServerSpec) -> "ServerFolder":
        if (ray := spec.settings.ray) is None:
            return cls(path, LocalHost(SUPERVISOR, path))
        return cls(path, RayHost(SUPERVISOR, path, ray, spec.settings.reserved_gpus))

    @classmethod
    def at(cls, path: Path) -> "ServerFolder":
        """That of a server that was started once."""
        return cls.of(path, ServerSpec.model_validate_json((path / _SPEC).read_bytes()))

    @property
    def spec(self) -> ServerSpec:
        return ServerSpec.model_validate_json((self.path / _SPEC).read_bytes())

    def state(self) -> ServerState | None:
        """What the server does; None: it does not run, and its last end was no failure."""
        is_supervised = self.is_supervised  # before the state is read: see `take_supervision`
        try:
            state = ServerState.model_validate_json((self.path / _STATE).read_bytes())
        except (OSError, ValidationError):
            return None
        return state if state.state == "failed" or is_supervised else None

    def write(self, state: ServerState) -> None:
        atomic_write(self.path / _STATE, state.model_dump_json())

    @property
    def is_supervised(self) -> bool:
        return self.host.locks.is_locked(self.path / SUPERVISOR_LOCK)

    def take_supervision(self) -> Held | None:
        """The lock of the supervisor, without waiting; None: another process holds it.

        Before anybody sees it held, the state of a killed supervisor is gone: its server, which is
        ending, would be taken for the new one.
        """
        locks = self.host.locks
        if (taking := locks.try_lock(self.path / _TAKING)) is None:
            return None
        try:
            if self.is_supervised:
                return None
            (self.path / _STATE).unlink(missing_ok=True)
            return locks.try_lock(self.path / SUPERVISOR_LOCK)
        finally:
            taking.release()

    def stop(self) -> None:
        """Have the supervisor end, and the server with it, also while it is used."""
        if self.is_supervised or self.host.is_queued():
            state = self.state()
            self.host.stop(state.pid if state else None)

    def key(self) -> str:
        """The API key that all servers of the home share, made on first use."""
        path = self.path.parent / _KEY
        if not path.exists():
            draft = path.with_name(f".{_KEY}-{secrets.token_hex(4)}")
            draft.touch(mode=0o600)
            draft.write_text(secrets.token_urlsafe(32), "utf-8")
            with suppress(FileExistsError):
                os.link(draft, path)
            draft.unlink()
        return path.read_text("utf-8")


@dataclass(frozen=True)
class ServerInstance:
    """A server as a profile describes it, with one model, in a home."""

    spec: ServerSpec
    folder: ServerFolder

    @classmethod
    def of(cls, spec: ServerSpec, home: Home) -> "ServerInstance":
        """Its folder is named by all that it is: changed settings, but not another price, make
        another server."""
        digest = content_digest(
            spec.model_dump(mode="json", exclude={"settings": {"gpu_hour_usd"}})
        )
        name = f"{spec.name}-{digest[:8]}"
        return cls(spec, ServerFolder.of(home.local.absolute() / "servers" / name, spec))

    async def lease(self) -> Lease:
        """Start the server unless it runs, and wait until it is ready, which can take minutes.

        Raises:
            BackendError: it cannot be started: the reason in one line, and the path of its log.
        """
        self.folder.path.mkdir(parents=True, exist_ok=True)
        key = self.folder.key()
        users = self.folder.path / USERS
        if users not in _uses:
            use = await self._shared_lock(users)
            if _uses.setdefault(users, use) is not use:
                use.release()
        lock = await self._shared_lock(self.folder.path / LEASE)
        try:
            state = await self._ready()
        except BaseException:
            lock.release()
            raise
        return Lease(state.url or "", key, self.folder, state.pid, lock)

    async def _ready(self) -> ServerState:
        earlier, starts, logged = self.folder.state(), 0, ""
        unreachable_at: float | None = None
        while True:
            state = self.folder.state()
            if state and state.state == "ready":
                if not self.folder.host.is_remote or await _accepts(state.url or ""):
                    return state
                unreachable_at = unreachable_at or time.monotonic()
                if time.monotonic() - unreachable_at > _UNREACHABLE_SECONDS:
                    raise BackendError(
                        f"server {self.spec.name} is ready at {state.url}, but this machine "
                        "cannot connect to it: let it through the firewall"
                    )
            elif state and state.state == "failed" and state != earlier:
                raise BackendError(f"server {self.spec.name} cannot be used: {state.note}")
            note = f"{state.state} {state.note}".strip() if state else "starting"
            if logged != (logged := note):
                _log.info("server %s: %s", self.spec.name, note)
            if await asyncio.to_thread(self._is_down):
                if starts == _STARTS:
                    raise BackendError(
                        f"the supervisor of server {self.spec.name} ended without a reason (log: "
                        f"{self.folder.host.log})"
                    )
                await asyncio.to_thread(self._start)
                starts += 1
            await asyncio.sleep(_POLL_SECONDS)

    def _is_down(self) -> bool:
        return not self.folder.is_supervised and not self.folder.host.is_starting()

    def _start(self) -> None:
        atomic_write(self.folder.path / _SPEC, self.spec.model_dump_json(indent=2))
        self.folder.host.start()

    async def _shared_lock(self, path: Path) -> Held:
        """Waits while the supervisor looks whether it is free, or stops the server."""
        while (lock := self.folder.host.locks.try_lock(path, shared=True)) is None:
            await asyncio.sleep(_POLL_SECONDS)
        return lock


def server_folders(home: Home) -> Iterator[ServerFolder]:
    """All servers of a home that were ever started."""
    for path in sorted((home.local.absolute() / "servers").glob(f"*/{_SPEC}")):
        yield ServerFolder.at(path.parent)


async def _accepts(url: str) -> bool:
    """Whether a server accepts connections."""
    address = urlsplit(url)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(address.hostname, address.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
