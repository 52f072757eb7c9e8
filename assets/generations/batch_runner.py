"""Runs a batch: many requests concurrently, their rows in the order of the requests."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from inference.engine.progress import Progress
from inference.engine.retry import summarize_error
from inference.engine.worker_pool import WorkerPool
from inference.events import TrajectoryFailed
from inference.generation.agent_resolver import AgentResolver, PromotedAgentResolver
from inference.generation.generation_sink import BufferSink
from inference.generation.requests import GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.loop import check_conditioning
from inference.roles import Roles
from schemas import FoundryError, Row, Table
from schemas.generations import GENERATIONS, GenerationRow
from schemas.trajectories import ATTEMPTS, PLANS, QUARANTINE, AttemptRow, PlanRow, QuarantineRow

from ..core.foundry import FoundryResource
from .batches import STAGE, Batch
from .settings import GenerationsSettings

Rows = dict[Table, list[Any]]


@dataclass(frozen=True)
class BatchResults:
    """The requests of a batch, with the plan steps and attempts of each."""

    requests: Sequence[GenerationRow]
    _plans: dict[str, list[PlanRow]] = field(repr=False)
    _attempts: dict[str, list[AttemptRow]] = field(repr=False)

    @classmethod
    def of(cls, rows: Rows) -> "BatchResults":
        plans, attempts = _by(rows[PLANS], "plan_id"), _by(rows[ATTEMPTS], "trajectory_id")
        return cls(rows[GENERATIONS], plans, attempts)

    def steps(self, request: GenerationRow) -> list[PlanRow]:
        """The steps that were run, in order."""
        plan = self._plans.get(request.plan_id or "", [])
        return sorted(plan, key=lambda step: step.step_number)[: request.steps]

    def attempts(self, request: GenerationRow) -> list[AttemptRow]:
        return self._attempts.get(request.trajectory_id, [])


async def run_batch(
    foundry: FoundryResource, settings: GenerationsSettings, batch: Batch, progress: Progress
) -> Rows:
    """Rows of every table, in the order of the requests; journaled calls are not made again.

    Raises:
        FoundryError: more requests failed than `limits.failure_share` allows, there are no such
            agents, or the lake cannot be written.
    """
    profile, home, sink = foundry.settings, foundry.home, BufferSink()
    limits = profile.limits
    pool = WorkerPool(batch.name, limits.in_flight, limits.failure_share, progress)
    async with (
        PromotedAgentResolver(profile, home, settings.agents) as resolver,
        GenerationRunner(home, limits, sink) as runner,
    ):
        results = await pool.map(_BatchRun(runner, resolver, batch.name), batch.requests)
    rows = _merge(sink, batch)
    failed = [result.quarantine for result in results if result.quarantine]
    rows[QUARANTINE] = [*batch.quarantine, *failed]
    return rows


@dataclass(frozen=True)
class _RequestResult:
    quarantine: QuarantineRow | None = None


@dataclass(frozen=True)
class _BatchRun:
    """Runs one request; agents are resolved once for the batch, per critic."""

    runner: GenerationRunner
    resolver: AgentResolver
    batch: str
    _roles: dict[str | None, Roles] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self, request: GenerationRequest) -> _RequestResult:
        try:
            roles = await self._resolve(request)
        except FoundryError as error:
            return self._quarantine(request, summarize_error(error))
        last = None
        async with aclosing(self.runner.run(request, roles)) as events:
            async for event in events:
                last = event
        if isinstance(last, TrajectoryFailed) and not last.refused:
            return self._quarantine(request, last.reason)
        return _RequestResult()

    async def _resolve(self, request: GenerationRequest) -> Roles:
        async with self._lock:
            if request.critic not in self._roles:
                self._roles[request.critic] = await self.resolver.resolve(request.critic)
        resolved = self._roles[request.critic]
        check_conditioning(request.options, resolved.generator)
        return resolved

    def _quarantine(self, request: GenerationRequest, reason: str) -> _RequestResult:
        row = QuarantineRow(
            prompt_id=request.generation_id, shard=self.batch, stage=STAGE, reason=reason
        )
        return _RequestResult(row)


def _merge(sink: BufferSink, batch: Batch) -> Rows:
    """All rows of the sink by table, in the order of the batch's requests."""
    merged: Rows = defaultdict(list)
    order = {request.generation_id: number for number, request in enumerate(batch.requests)}
    requests: list[Mapping[Table, Sequence[Any]]] = list(sink.requests)
    for rows in sorted(requests, key=lambda rows: order[rows[GENERATIONS][0].generation_id]):
        for table, table_rows in rows.items():
            merged[table] += table_rows
    return merged


def _by(rows: Iterable[Row], column: str) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        groups[getattr(row, column)].append(row)
    return groups
