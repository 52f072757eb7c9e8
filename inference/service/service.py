"""All parts of a running service, from its home to its metrics."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from schemas import StorageError
from warehouse import Home
from warehouse.file_lock import exclusive_lock

from ..generation.agent_resolver import AgentResolver
from ..generation.runner import GenerationRunner
from ..settings import Limits, LoopSettings
from .lifecycle import RunEvent
from .logs import GenerationLog
from .metrics import ServiceMetrics
from .request_manager import RequestManager
from .response_store import ResponseStore
from .responses.streaming_events import warm_up
from .run import GenerationRun
from .settings import ServiceSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    """See `open_service`."""

    home: Home
    library: ResponseStore
    casting: AgentResolver
    desk: RequestManager
    metrics: ServiceMetrics
    usual: LoopSettings
    settings: ServiceSettings


@asynccontextmanager
async def open_service(
    home: Home,
    casting: AgentResolver,
    usual: LoopSettings,
    limits: Limits,
    settings: ServiceSettings,
) -> AsyncIterator[Service]:
    """A service that tells stories until the context is left.

    What a killed one had under way is marked as interrupted.

    Args:
        usual: rules of requests that say nothing else.

    Raises:
        StorageError: another service has this home, or it cannot be written.
    """
    with _only_one(home):
        await asyncio.to_thread(warm_up)
        library, metrics = ResponseStore(home), ServiceMetrics()
        log = GenerationLog(settings.logs.prompts)

        def watch(run: GenerationRun, event: RunEvent) -> None:
            metrics.record(run, event)
            log.record(run, event)

        async with GenerationRunner(home, limits) as teller:
            desk = RequestManager(home, library, teller, casting, settings, watch)
            if interrupted := desk.recover():
                _log.warning("%d requests were interrupted by the last stop", interrupted)
            try:
                yield Service(home, library, casting, desk, metrics, usual, settings)
            finally:
                await desk.close(0, hurry=lambda: True)
        library.close()


@contextmanager
def _only_one(home: Home) -> Iterator[None]:
    """Two services could not tell each other's requests from those that a kill left."""
    path = home.local / "service" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    in_use = f"another service uses {home.root}: stop it, or give this one another home"
    with exclusive_lock(path, StorageError(in_use)):
        yield
