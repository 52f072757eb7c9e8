"""A batch told: many requests at once through the one door, their rows in the batch's order."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from inference.engine.progress import Progress
from inference.engine.retry import summarize_error
from inference.engine.worker_pool import WorkerPool
from inference.events import TrajectoryFailed
from inference.generation.agent_resolver import AgentResolver, PromotedAgentResolver, ResolvedRoles
from inference.generation.generation_sink import BufferSink
from inference.generation.requests import GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.loop import check_conditioning
from schemas import FoundryError, Table
from schemas.generations import GENERATIONS
from schemas.trajectories import QUARANTINE, QuarantineRow

from ..core.foundry import FoundryResource
from .batch_results import Rows
from .batches import STAGE, Batch
from .settings import GenerationsSettings


async def run_batch(
    foundry: FoundryResource, settings: GenerationsSettings, batch: Batch, progress: Progress
) -> Rows:
    """Rows of every table, in the order of the requests; what was finished before costs nothing.

    Raises:
        FoundryError: more requests failed than `limits.failure_share` allows, there are no such
            agents, or the lake cannot be written.
    """
    profile, home, gathered = foundry.settings, foundry.home, BufferSink()
    limits = profile.limits
    crew = WorkerPool(batch.name, limits.in_flight, limits.failure_share, progress)
    async with (
        PromotedAgentResolver(profile, home, settings.agents) as casting,
        GenerationRunner(home, limits, gathered) as teller,
    ):
        told = await crew.each(batch.requests, _BatchRun(teller, casting, batch.name))
    rows = _in_order(gathered, batch)
    rows[QUARANTINE] = [*batch.quarantine, *(each.quarantine for each in told if each.quarantine)]
    return rows


@dataclass(frozen=True)
class _BatchResult:
    quarantine: QuarantineRow | None = None


@dataclass(frozen=True)
class _BatchRun:
    """Tells one request; the players of the first are those of the whole batch."""

    teller: GenerationRunner
    casting: AgentResolver
    batch: str
    _casts: dict[str | None, ResolvedRoles] = field(default_factory=dict)
    _choosing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self, request: GenerationRequest) -> _BatchResult:
        try:
            cast = await self._cast(request)
        except FoundryError as error:
            return self._aside(request, summarize_error(error))
        last = None
        async with aclosing(self.teller.tell(request, cast)) as events:
            async for event in events:
                last = event
        if isinstance(last, TrajectoryFailed) and not last.refused:
            return self._aside(request, last.reason)
        return _BatchResult()

    async def _cast(self, request: GenerationRequest) -> ResolvedRoles:
        async with self._choosing:
            if request.critic not in self._casts:
                self._casts[request.critic] = await self.casting.cast(request.critic)
        cast = self._casts[request.critic]
        check_conditioning(request.rules, cast.roles.generator)
        return cast

    def _aside(self, request: GenerationRequest, reason: str) -> _BatchResult:
        return _BatchResult(
            QuarantineRow(
                prompt_id=request.generation_id, shard=self.batch, stage=STAGE, reason=reason
            )
        )


def _in_order(gathered: BufferSink, batch: Batch) -> Rows:
    merged: Rows = defaultdict(list)
    place = {request.generation_id: number for number, request in enumerate(batch.requests)}
    requests: list[Mapping[Table, Sequence[Any]]] = list(gathered.requests)
    for rows in sorted(requests, key=lambda rows: place[rows[GENERATIONS][0].generation_id]):
        for table, found in rows.items():
            merged[table] += found
    return merged
