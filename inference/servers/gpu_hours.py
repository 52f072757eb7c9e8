"""The GPU hours of a server, in the lake while it runs: table `server_hours`.

A run of a server is a partition of its own, which each sign of life replaces. So nothing is counted
twice, and of a supervisor that is killed at most a minute is missing.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from schemas import StorageError
from schemas.costs import SERVER_HOURS, ServerHoursRow
from warehouse import Home

from .settings import ServerSpec

_BEAT_SECONDS = 60.0
_DAY = timedelta(days=1)
_log = logging.getLogger(__name__)


@contextmanager
def recorded_gpu_hours(spec: ServerSpec) -> Iterator[None]:
    """Inside, the server holds its GPUs. One without GPUs is not recorded.

    A lake that cannot be written stops no server: the next sign of life has all of the run.
    """
    if not spec.settings.gpus:
        yield
        return
    run, ended = ServerRun(spec, datetime.now(UTC)), threading.Event()

    def beat() -> None:
        _record(run)
        while not ended.wait(_BEAT_SECONDS):
            _record(run)

    # A thread: a slow store must not keep the supervisor from its server.
    beating = threading.Thread(target=beat, name="gpu-hours", daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        _record(run)


def _record(run: "ServerRun") -> None:
    try:
        Home(run.spec.root).lake.write(SERVER_HOURS, run.rows(), run.id)
    except StorageError as error:
        _log.warning("GPU hours of server %s are not recorded: %s", run.spec.name, error)


@dataclass
class ServerRun:
    """One run of a server.

    Args:
        started_at: when it got its GPUs. Its length is measured by a clock that nobody sets.
    """

    spec: ServerSpec
    started_at: datetime
    id: str = field(init=False)
    _since: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self.id = f"{self.started_at:%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"

    def rows(self) -> list[ServerHoursRow]:
        """The run up to now, a row a day."""
        now = self.started_at + timedelta(seconds=time.monotonic() - self._since)
        rows: list[ServerHoursRow] = []
        start = self.started_at
        while not rows or start < now:
            midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + _DAY
            rows.append(self._row(start, min(now, midnight)))
            start = midnight
        return rows

    def _row(self, start: datetime, end: datetime) -> ServerHoursRow:
        settings = self.spec.settings
        hours = settings.reserved_gpus * ((end - start) / timedelta(hours=1))
        price = settings.gpu_hour_usd
        return ServerHoursRow(
            run_id=self.id,
            day=start.date(),
            server=self.spec.name,
            model=self.spec.ledger_name,
            started_at=start,
            ended_at=end,
            gpus=settings.reserved_gpus,
            gpu_hours=hours,
            cost_usd=None if price is None else price * hours,
        )
