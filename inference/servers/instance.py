"""A server of a home: its supervisor is started on first use, and users hold leases.

Everything about it is in a folder below `servers/`: `server.json` (what is served), `state.json`,
logs and lock files. Calls lock `lease` shared; the supervisor locks it exclusively before it stops
the server. A process that has used the server locks `users` shared as long as it lives. The
supervisor holds `supervisor`.
"""

import asyncio
import logging
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from warehouse import Home
from warehouse.atomic import atomic_write
from warehouse.file_lock import HeldLock, is_locked, try_lock

from ..engine.hashing import content_digest
from ..roles import BackendError
from .settings import ServerSpec, ServerState

# Module of the supervisor, a process of its own, which installs environments and starts trainers'
# processes: it is of a package that this one may not import.
SUPERVISOR = "training.serving.managed"
SUPERVISOR_LOCK, LEASE, USERS, LOG = "supervisor", "lease", "users", "supervisor.log"
_SPEC, _STATE, _KEY = "server.json", "state.json", "key"
_POLL_SECONDS = 0.2
_STARTS = 3
# Variables of a training, or of a run of Dagster, which a server outlives.
_NOT_INHERITED = ("INTERLEAVE_TRAIN", "DAGSTER_PIPES_", "RAY_")

_log = logging.getLogger(__name__)

# Of the servers that this process has used; freed by its end.
_uses: dict[Path, HeldLock] = {}


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
    lock: HeldLock = field(repr=False)

    @property
    def is_valid(self) -> bool:
        """Whether the server that was leased still runs."""
        state = self.folder.state()
        return state is not None and (state.pid, state.url) == (self.supervisor, self.url)

    def release(self) -> None:
        self.lock.release()


@dataclass(frozen=True)
class ServerFolder:
    """The files of one server."""

    path: Path

    @property
    def spec(self) -> ServerSpec:
        return ServerSpec.model_validate_json((self.path / _SPEC).read_bytes())

    def state(self) -> ServerState | None:
        """What the server does; None: it does not run, and its last end was no failure."""
        try:
            state = ServerState.model_validate_json((self.path / _STATE).read_bytes())
        except (OSError, ValidationError):
            return None
        return state if state.state == "failed" or self.is_supervised else None

    def write(self, state: ServerState) -> None:
        atomic_write(self.path / _STATE, state.model_dump_json())

    @property
    def is_supervised(self) -> bool:
        return is_locked(self.path / SUPERVISOR_LOCK)

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
        """Its folder is named by all that it is: changed settings make another server."""
        name = f"{spec.name}-{content_digest(spec.model_dump(mode='json'))[:8]}"
        return cls(spec, ServerFolder(home.local.absolute() / "servers" / name))

    async def lease(self) -> Lease:
        """Start the server unless it runs, and wait until it is ready, which can take minutes.

        Raises:
            BackendError: it cannot be started: the reason in one line, and the path of its log.
        """
        self.folder.path.mkdir(parents=True, exist_ok=True)
        key = self.folder.key()
        users = self.folder.path / USERS
        if users not in _uses:
            use = await _shared_lock(users)
            if _uses.setdefault(users, use) is not use:
                use.release()
        lock = await _shared_lock(self.folder.path / LEASE)
        try:
            state = await self._ready()
        except BaseException:
            lock.release()
            raise
        return Lease(state.url or "", key, self.folder, state.pid, lock)

    async def _ready(self) -> ServerState:
        asked_at, starts, logged = time.time(), 0, None
        starter: subprocess.Popen[bytes] | None = None
        while True:
            state = self.folder.state()
            if state and logged != (logged := f"{state.state} {state.note}".strip()):
                _log.info("server %s: %s", self.spec.name, logged)
            if state and state.state == "ready":
                return state
            if state and state.state == "failed" and state.since >= asked_at:
                raise BackendError(f"server {self.spec.name} cannot be used: {state.note}")
            if not self.folder.is_supervised and (starter is None or starter.poll() is not None):
                if starts == _STARTS:
                    raise BackendError(
                        f"the supervisor of server {self.spec.name} ended without a reason (log: "
                        f"{self.folder.path / LOG})"
                    )
                starter, starts = self._start(), starts + 1
            await asyncio.sleep(_POLL_SECONDS)

    def _start(self) -> subprocess.Popen[bytes]:
        """A process that ends once the supervisor is a daemon, nobody's child."""
        atomic_write(self.folder.path / _SPEC, self.spec.model_dump_json(indent=2))
        kept = {n: v for n, v in os.environ.items() if not n.startswith(_NOT_INHERITED)}
        with (self.folder.path / LOG).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", SUPERVISOR, str(self.folder.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=kept,
                start_new_session=True,
            )


async def _shared_lock(path: Path) -> HeldLock:
    """Waits while the supervisor looks whether it is free, or stops the server."""
    while (lock := try_lock(path, shared=True)) is None:
        await asyncio.sleep(_POLL_SECONDS)
    return lock


def server_folders(home: Home) -> Iterator[ServerFolder]:
    """All servers of a home that were ever started."""
    for path in sorted((home.local.absolute() / "servers").glob(f"*/{_SPEC}")):
        yield ServerFolder(path.parent)
