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
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from warehouse import Home
from warehouse.atomic import atomic_write

from ..calls.hashing import content_digest
from ..roles import BackendError
from .hosts import Held, LocalHost, RayHost
from .settings import ServerSpec, ServerState

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
    """A server that is ready, and is not stopped before `release`. `key`: its API key."""

    url: str
    key: str = field(repr=False)
    server: "ServerInstance" = field(repr=False)
    supervisor: int = field(repr=False)
    lock: Held = field(repr=False)

    @property
    def is_valid(self) -> bool:
        """Whether the server that was leased still runs, as far as its state says."""
        state = self.server.state()
        return state is not None and (state.pid, state.url) == (self.supervisor, self.url)

    async def is_reachable(self) -> bool:
        """Whether it accepts connections: of one that has just died nothing else says so."""
        return await _accepts(self.url)

    def release(self) -> None:
        self.lock.release()


@dataclass(frozen=True)
class ServerInstance:
    """A server as a profile describes it, with one model, in a home. `path`: its folder."""

    path: Path
    spec: ServerSpec

    @classmethod
    def of(cls, spec: ServerSpec, home: Home) -> "ServerInstance":
        """Its folder is named by all that it is: changed settings, but not another price, make
        another server."""
        digest = content_digest(
            spec.model_dump(
                mode="json", exclude={"settings": {"gpu_hour_usd"}}, exclude_defaults=True
            )
        )
        return cls(home.local.absolute() / "servers" / f"{spec.name}-{digest[:8]}", spec)

    @classmethod
    def at(cls, path: Path) -> "ServerInstance":
        """That of a folder: a server that was started once."""
        return cls(path, ServerSpec.model_validate_json((path / _SPEC).read_bytes()))

    @cached_property
    def host(self) -> LocalHost:
        return (RayHost if self.spec.settings.ray else LocalHost)(self.path, self.spec)

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

    async def lease(self) -> Lease:
        """Start the server unless it runs, and wait until it is ready, which can take minutes.

        Raises:
            BackendError: it cannot be started: the reason in one line, and the path of its log.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        key = self.key()
        users = self.path / USERS
        if users not in _uses:
            use = await self._shared_lock(users)
            if _uses.setdefault(users, use) is not use:
                use.release()
        lock = await self._shared_lock(self.path / LEASE)
        try:
            state = await self._ready()
        except BaseException:
            lock.release()
            raise
        return Lease(state.url or "", key, self, state.pid, lock)

    async def _ready(self) -> ServerState:
        state, starts, logged = self.state(), 0, ""
        # A run that failed before this call, or dies after it was ready, is followed by another.
        ended = state.pid if state and state.state == "failed" else None
        unreachable_at: float | None = None
        while True:
            state = self.state()
            if state and state.state == "ready":
                if await _accepts(state.url or ""):
                    return state
                ended = state.pid
                unreachable_at = unreachable_at or time.monotonic()
                if time.monotonic() - unreachable_at > _UNREACHABLE_SECONDS:
                    raise BackendError(
                        f"server {self.spec.name} is ready at {state.url}, but this machine "
                        "cannot connect to it: let it through the firewall"
                    )
            elif state and state.state == "failed" and state.pid != ended:
                raise BackendError(f"server {self.spec.name} cannot be used: {state.note}")
            note = f"{state.state} {state.note}".strip() if state else "starting"
            if logged != (logged := note):
                _log.info("server %s: %s", self.spec.name, note)
            is_up = await asyncio.to_thread(lambda: self.is_supervised or self.host.is_starting())
            if not is_up:
                if starts == _STARTS:
                    raise BackendError(
                        f"the supervisor of server {self.spec.name} ended without a reason (log: "
                        f"{self.host.log})"
                    )
                await asyncio.to_thread(self._start)
                starts += 1
            await asyncio.sleep(_POLL_SECONDS)

    def _start(self) -> None:
        atomic_write(self.path / _SPEC, self.spec.model_dump_json(indent=2))
        self.host.start()

    async def _shared_lock(self, path: Path) -> Held:
        """Waits while the supervisor looks whether it is free, or stops the server."""
        while (lock := self.host.locks.try_lock(path, shared=True)) is None:
            await asyncio.sleep(_POLL_SECONDS)
        return lock


def home_servers(home: Home) -> Iterator[ServerInstance]:
    """All servers of a home that were ever started."""
    for path in sorted((home.local.absolute() / "servers").glob(f"*/{_SPEC}")):
        yield ServerInstance.at(path.parent)


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
