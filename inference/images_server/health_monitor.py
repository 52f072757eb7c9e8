"""How the replicas are doing, looked at once a second."""

import asyncio
from collections.abc import Callable

from warehouse.storage import first_line

from .ray_replicas import Readiness, ReplicaPool

_SECONDS = 1.0


class HealthMonitor:
    """The last look, and who is told when it changes."""

    def __init__(self, studio: ReplicaPool, tell: Callable[[Readiness], object]) -> None:
        self._studio, self._tell = studio, tell
        self.last = Readiness(0, studio.wanted, "replicas are being started")

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            seen = await asyncio.to_thread(self._look)
            if seen != self.last:
                self.last = seen
                self._tell(seen)
            await asyncio.sleep(_SECONDS)

    def _look(self) -> Readiness:
        try:
            return self._studio.readiness()
        except Exception as error:  # Ray raises errors of all kinds
            reason = f"Ray Serve does not answer: {first_line(error)}"
            return Readiness(0, self._studio.wanted, reason)
