"""Runs a batch: many requests concurrently, their rows in the order of the requests."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from inference.calls.progress import Progress
from inference.calls.retry import summarize_error
from inference.calls.worker_pool import WorkerPool
from inference.events import TrajectoryFailed
from inference.generation.agent_resolver import AgentResolver
from inference.generation.requests import GenerationRequest, RequestedAgents
from inference.generation.runner import GenerationRunner
from inference.loop import check_conditioning
from inference.roles import Roles
from schemas import FoundryError, Table
from schemas.generations import GENERATIONS, GenerationRow
from schemas.trajectories import PLANS, PlanRow, QuarantineRow

from ..core.foundry import FoundryResource
from .batches import Batch
from .settings import GenerationsSettings

Rows = Mapping[Table, Sequence[Any]]  # of one request


@dataclass(frozen=True)
class BatchResults:
    """The rows of the requests that were run, in their order, and the quarantined ones."""

    requests: list[Rows]
    quarantine: list[QuarantineRow]

    def rows(self, table: Table) -> list[Any]:
        return [row for rows in self.requests for row in rows[table]]


def request_of(rows: Rows) -> GenerationRow:
    return rows[GENERATIONS][0]


def steps_of(rows: Rows) -> list[PlanRow]:
    """The steps that were run, in order."""
    return sorted(rows[PLANS], key=lambda step: step.step_number)[: request_of(rows).steps]


async def run_batch(
    foundry: FoundryResource, settings: GenerationsSettings, batch: Batch, progress: Progress
) -> BatchResults:
    """Run the requests of a batch; journaled calls are not made again.

    Raises FoundryError: more requests failed than `limits.failure_share` allows, there are no such
    agents, or the lake cannot be written.
    """
    profile, home, limits = foundry.settings, foundry.home, foundry.settings.limits
    collected: list[Rows] = []
    pool = WorkerPool(batch.name, limits.in_flight, limits.failure_share, progress)
    async with (
        AgentResolver(profile, home, settings.agents) as resolver,
        GenerationRunner(home, limits, collected) as runner,
    ):
        _, quarantine = await pool.map(_BatchRun(runner, resolver, batch), batch.requests)
    order = {request.generation_id: number for number, request in enumerate(batch.requests)}
    ran = sorted(collected, key=lambda rows: order[request_of(rows).generation_id])
    return BatchResults(ran, [*batch.quarantine, *quarantine])


@dataclass(frozen=True)
class _BatchRun:
    """Runs one request; agents are resolved once for the batch."""

    runner: GenerationRunner
    resolver: AgentResolver
    batch: Batch
    _roles: dict[RequestedAgents, Roles] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self, request: GenerationRequest) -> QuarantineRow | None:
        try:
            async with self._lock:
                if request.agents not in self._roles:
                    self._roles[request.agents] = await self.resolver.resolve(request.agents)
            roles = self._roles[request.agents]
            await asyncio.to_thread(check_conditioning, request.options, roles.generator)
        except FoundryError as error:
            return self.batch.quarantined(request.generation_id, summarize_error(error))
        last = None
        async with aclosing(self.runner.run(request, roles)) as events:
            async for event in events:
                last = event
        if isinstance(last, TrajectoryFailed) and not last.refused:
            return self.batch.quarantined(request.generation_id, last.reason)
        return None
