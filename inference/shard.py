"""The three engines: plan, run and score the prompts of one shard.

Each runs on one event loop, makes its calls through the shard's journal, and can be killed at any
time and run again: finished calls are found, the others made, the rows come out the same.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from schemas import Row
from schemas.prompts import PromptRow
from schemas.trajectories import (
    GRADES,
    AttemptRow,
    MemberScoreRow,
    ModelCallRow,
    PlanRow,
    QuarantineRow,
    ScoreRow,
    TrajectoryRow,
)
from warehouse import EncodedImage, Home

from .engine.calls import CallSite, ModelCalls
from .engine.ensemble import MemberScore
from .engine.progress import Progress
from .engine.worker_pool import WorkerPool, WorkResult, quarantine_reason
from .loop import Loop, PlannedRequest, check_plan
from .plans import plan_from_rows, plan_rows
from .roles import PlanRequest, Roles, Score, UnusableAnswerError, qualified_name, uses_batch_api
from .settings import Limits, LoopSettings
from .trajectory_recorder import TrajectoryRecorder

R = TypeVar("R", bound=Row)
T = TypeVar("T")


class _Tables:
    """Rows by table. Its repr is short because asyncio formats the result of every run."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(rows)} {table}" for table, rows in vars(self).items())
        return f"{type(self).__name__}({counts})"


@dataclass(frozen=True, repr=False)
class PlannedShard(_Tables):
    """The plans of a shard."""

    plans: list[PlanRow]
    calls: list[ModelCallRow]
    quarantine: list[QuarantineRow]


@dataclass(frozen=True, repr=False)
class ShardResult(_Tables):
    """The trajectories of a shard and their attempts."""

    trajectories: list[TrajectoryRow]
    attempts: list[AttemptRow]
    calls: list[ModelCallRow]
    quarantine: list[QuarantineRow]


@dataclass(frozen=True, repr=False)
class ScoredShard(_Tables):
    """The scores of a shard, none for a quarantined prompt. `members`: those of an ensemble."""

    scores: list[ScoreRow]
    members: list[MemberScoreRow]
    calls: list[ModelCallRow]
    quarantine: list[QuarantineRow]


async def plan_shard(
    prompts: Iterable[PromptRow] | pa.Table,
    roles: Roles,
    home: Home,
    settings: LoopSettings,
    limits: Limits,
    progress: Progress | None = None,
) -> PlannedShard:
    """Have a plan written for every prompt of one shard.

    Raises:
        FoundryError: too many prompts were quarantined, or the lake cannot be written.
    """
    rows = _as_rows(PromptRow, prompts)
    if not rows:
        return PlannedShard([], [], [])
    shard = rows[0].shard
    with ModelCalls(home, "plans", shard, roles, limits) as calls:
        workers = len(rows) if uses_batch_api(roles.planner) else limits.in_flight
        pool = WorkerPool(shard, workers, limits.failure_share, progress)
        results = await pool.map(_Planning(calls, settings), rows)
        return PlannedShard(
            plans=[row for result in results for row in result.rows],
            calls=calls.ledger(),
            quarantine=_quarantined(results),
        )


async def run_shard(
    prompts: Iterable[PromptRow] | pa.Table,
    plans: Iterable[PlanRow] | pa.Table,
    roles: Roles,
    home: Home,
    shard: str,
    settings: LoopSettings,
    limits: Limits,
    progress: Progress | None = None,
) -> ShardResult:
    """Run the planner-critic loop over every prompt of a shard.

    A prompt without a plan becomes a quarantined trajectory. `plans` has one plan per prompt.

    Raises:
        FoundryError: too many prompts were quarantined, or the lake cannot be written.
    """
    plan_of = _group(_as_rows(PlanRow, plans), "prompt_id")
    with ModelCalls(home, "trajectories", shard, roles, limits) as calls:
        pool = WorkerPool(shard, limits.in_flight, limits.failure_share, progress)
        results = await pool.map(
            _TrajectoryRun(calls, settings, plan_of),
            _as_rows(PromptRow, prompts),
            size=lambda prompt: len(plan_of.get(prompt.prompt_id, [])),
        )
        return ShardResult(
            trajectories=[result.trajectory for result in results],
            attempts=[row for result in results for row in result.rows],
            calls=calls.ledger(),
            quarantine=_quarantined(results),
        )


async def score_shard(
    attempts: Iterable[AttemptRow] | pa.Table,
    trajectories: Iterable[TrajectoryRow] | pa.Table,
    plans: Iterable[PlanRow] | pa.Table,
    roles: Roles,
    home: Home,
    shard: str,
    limits: Limits,
    progress: Progress | None = None,
) -> ScoredShard:
    """Score every attempt of a shard against its step's plan prompt.

    Scores that `on_exhausted: best` asked for are taken from the loop's journal.

    Raises:
        FoundryError: too many prompts were quarantined, or the lake cannot be written.
    """
    goals = _goals(_as_rows(TrajectoryRow, trajectories), _as_rows(PlanRow, plans))
    chains = list(_group(_as_rows(AttemptRow, attempts), "trajectory_id").values())
    with ModelCalls(home, "scores", shard, roles, limits, fallback_journal="trajectories") as calls:
        workers = len(chains) if uses_batch_api(roles.scorer) else limits.in_flight
        pool = WorkerPool(shard, workers, limits.failure_share, progress)
        results = await pool.map(_Scoring(calls, goals), chains, size=len)
        rows = [row for result in results for row in result.rows]
        return ScoredShard(
            scores=[row.score for row in rows],
            members=[member for row in rows for member in row.members],
            calls=calls.ledger(),
            quarantine=_quarantined(results),
        )


def _as_rows(kind: type[R], rows: Iterable[R] | pa.Table) -> list[R]:
    """Row objects, also of a table read from the lake."""
    if isinstance(rows, pa.Table):
        return [kind.model_validate(row) for row in rows.to_pylist()]
    return list(rows)


@dataclass(frozen=True)
class _PromptResult(Generic[T]):
    rows: list[T]
    quarantine: QuarantineRow | None


@dataclass(frozen=True)
class _TrajectoryResult(_PromptResult[AttemptRow]):
    trajectory: TrajectoryRow


@dataclass(frozen=True)
class _Planning:
    """From a prompt to its plan."""

    calls: ModelCalls
    settings: LoopSettings

    async def __call__(self, prompt: PromptRow) -> _PromptResult[PlanRow]:
        rows: list[PlanRow] = []
        reason = await quarantine_reason(self._plan(prompt, rows))
        return _PromptResult(rows, _quarantine(prompt, "plans", reason))

    async def _plan(self, prompt: PromptRow, rows: list[PlanRow]) -> None:
        images = await _input_images(self.calls, prompt)
        request = PlanRequest(prompt.text, images)
        plan = (await self.calls.plan(CallSite(prompt.prompt_id), request)).answer
        check_plan(plan, self.settings.max_steps)
        rows.extend(plan_rows(prompt, plan, qualified_name(self.calls.roles.planner)))


@dataclass(frozen=True)
class _TrajectoryRun:
    """From a prompt and its plan to a trajectory."""

    calls: ModelCalls
    settings: LoopSettings
    plan_of: dict[str, list[PlanRow]]

    async def __call__(self, prompt: PromptRow) -> _TrajectoryResult:
        plan = self.plan_of.get(prompt.prompt_id, [])
        plan_id = plan[0].plan_id if plan else None
        recorder = TrajectoryRecorder(prompt, plan_id, self.calls.roles, self.settings)
        reason = await quarantine_reason(self._run(prompt, plan, recorder))
        return _TrajectoryResult(
            recorder.attempts(),
            _quarantine(prompt, "trajectories", reason),
            recorder.trajectory(reason),
        )

    async def _run(
        self, prompt: PromptRow, plan: list[PlanRow], recorder: TrajectoryRecorder
    ) -> None:
        if not plan:
            raise UnusableAnswerError("it has no plan")
        images = await _input_images(self.calls, prompt)
        request = PlannedRequest(prompt.prompt_id, plan_from_rows(plan), images)
        async with aclosing(Loop(request, self.calls, self.settings).events()) as events:
            async for event in events:
                recorder.note(event)


@dataclass(frozen=True)
class _AttemptScores:
    score: ScoreRow
    members: list[MemberScoreRow]


@dataclass(frozen=True)
class _Scoring:
    """From the attempts of a trajectory to their scores."""

    calls: ModelCalls
    goals: dict[tuple[str, int], str]

    async def __call__(self, chain: list[AttemptRow]) -> _PromptResult[_AttemptScores]:
        rows: list[_AttemptScores] = []
        reason = await quarantine_reason(self._score_all(chain, rows))
        return _PromptResult([] if reason else rows, _quarantine(chain[0], "scores", reason))

    async def _score_all(self, chain: list[AttemptRow], rows: list[_AttemptScores]) -> None:
        if uses_batch_api(self.calls.roles.scorer):  # all at once, to wait in one batch
            rows.extend(await asyncio.gather(*map(self._score, chain)))
            return
        rows.extend([await self._score(attempt) for attempt in chain])

    async def _score(self, attempt: AttemptRow) -> _AttemptScores:
        goal = self.goals.get((attempt.trajectory_id, attempt.step_number))
        if goal is None:
            raise UnusableAnswerError(f"step {attempt.step_number} has no prompt in the plan")
        source, image = attempt.source_image, attempt.image
        before = await self.calls.image(source) if source else None
        after = await self.calls.image(image)
        site = CallSite(attempt.prompt_id, attempt.step_number, attempt.iteration)
        result = await self.calls.score(site, before, after, goal)
        return _AttemptScores(
            score=ScoreRow(
                **_attempt_key(attempt),
                **_grades(result.score),
                scorer=qualified_name(self.calls.roles.scorer),
            ),
            members=[_member_row(attempt, member) for member in result.members],
        )


async def _input_images(calls: ModelCalls, prompt: PromptRow) -> tuple[EncodedImage, ...]:
    """A request's images, decoded once so that a broken one is an error here."""
    images = [await calls.image(sha256) for sha256 in prompt.input_images]
    for image in images:
        _ = image.image
    return tuple(images)


def _member_row(attempt: AttemptRow, result: MemberScore) -> MemberScoreRow:
    member = result.member
    return MemberScoreRow(
        **_attempt_key(attempt),
        **(_grades(result.score) if result.score else dict.fromkeys(GRADES)),
        member=member.name,
        scorer=qualified_name(member.scorer),
        weight=member.weight,
        refusal=result.refusal,
    )


def _attempt_key(attempt: AttemptRow) -> dict[str, Any]:
    return attempt.model_dump(
        include={"trajectory_id", "prompt_id", "shard", "step_number", "iteration"}
    )


def _grades(score: Score) -> dict[str, Any]:
    return {grade: getattr(score, grade) for grade in GRADES}


def _goals(
    trajectories: Sequence[TrajectoryRow], plans: Sequence[PlanRow]
) -> dict[tuple[str, int], str]:
    """The goal of each step of each trajectory: the prompt of its plan's step."""
    steps = _group(plans, "prompt_id")
    return {
        (trajectory.trajectory_id, step.step_number): step.prompt
        for trajectory in trajectories
        for step in steps.get(trajectory.prompt_id, [])
        if step.plan_id == trajectory.plan_id and step.prompt is not None
    }


def _group(rows: Iterable[R], column: str) -> dict[str, list[R]]:
    groups: dict[str, list[R]] = defaultdict(list)
    for row in rows:
        groups[getattr(row, column)].append(row)
    return dict(groups)


def _quarantine(
    row: PromptRow | AttemptRow, stage: str, reason: str | None
) -> QuarantineRow | None:
    if reason is None:
        return None
    return QuarantineRow(prompt_id=row.prompt_id, shard=row.shard, stage=stage, reason=reason)


def _quarantined(results: Sequence[WorkResult]) -> list[QuarantineRow]:
    return [result.quarantine for result in results if result.quarantine]
