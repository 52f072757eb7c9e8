"""The three engines: plan, tell and score the prompts of one shard.

Each runs on one event loop, makes its calls through the shard's journal, and can be killed at any
moment and started again: finished calls are found, the rest is made, the rows come out the same.
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
from .engine.ensemble import EnsembleScore, MemberScore
from .engine.progress import NullProgress, Progress
from .engine.worker_pool import WorkerPool, WorkResult, quarantine_reason
from .loop import Loop, PlannedRequest, check_plan
from .plans import by_prompt, plan_from_rows, plan_rows
from .roles import PlanRequest, Roles, Score, UnusableAnswerError, qualified_name, uses_batch_api
from .settings import Limits, LoopSettings
from .trajectory_recorder import TrajectoryRecorder

R = TypeVar("R", bound=Row)
D = TypeVar("D")


class _Tables:
    """Rows by table. Its repr is short: asyncio formats a task's whole result on every run."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(rows)} {table}" for table, rows in vars(self).items())
        return f"{type(self).__name__}({counts})"


@dataclass(frozen=True, repr=False)
class PlannedShard(_Tables):
    """What planning a shard came to."""

    plans: list[PlanRow]
    calls: list[ModelCallRow]
    quarantine: list[QuarantineRow]


@dataclass(frozen=True, repr=False)
class ShardResult(_Tables):
    """What telling a shard's stories came to."""

    trajectories: list[TrajectoryRow]
    attempts: list[AttemptRow]
    calls: list[ModelCallRow]
    quarantine: list[QuarantineRow]


@dataclass(frozen=True, repr=False)
class ScoredShard(_Tables):
    """A shard's scores. A prompt that was set aside has none at all, rather than some.

    `members` are what the members of an ensemble said.
    """

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
        FoundryError: too many prompts were set aside, or the lake cannot be written.
    """
    rows = rows_of(PromptRow, prompts)
    if not rows:
        return PlannedShard([], [], [])
    shard = rows[0].shard
    with ModelCalls(home, "plans", shard, roles, limits) as calls:
        workers = len(rows) if uses_batch_api(roles.planner) else limits.in_flight
        crew = WorkerPool(shard, workers, limits.failure_share, progress or NullProgress())
        planned = await crew.each(rows, _Planning(calls, settings))
        return PlannedShard(
            plans=[row for outcome in planned for row in outcome.rows],
            calls=calls.ledger(),
            quarantine=_quarantined(planned),
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

    A prompt without a plan becomes a quarantined trajectory. `plans` holds one plan a prompt.

    Raises:
        FoundryError: too many prompts were set aside, or the lake cannot be written.
    """
    plans_by_prompt = by_prompt(rows_of(PlanRow, plans))
    with ModelCalls(home, "trajectories", shard, roles, limits) as calls:
        crew = WorkerPool(shard, limits.in_flight, limits.failure_share, progress or NullProgress())
        told = await crew.each(
            rows_of(PromptRow, prompts),
            _TrajectoryWork(calls, settings, plans_by_prompt),
            size=lambda prompt: len(plans_by_prompt.get(prompt.prompt_id, [])),
        )
        return ShardResult(
            trajectories=[outcome.trajectory for outcome in told],
            attempts=[row for outcome in told for row in outcome.rows],
            calls=calls.ledger(),
            quarantine=_quarantined(told),
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

    Scores that `on_exhausted: best` already asked for are taken from the loop's journal.

    Raises:
        FoundryError: too many prompts were set aside, or the lake cannot be written.
    """
    goals = _goals(rows_of(TrajectoryRow, trajectories), rows_of(PlanRow, plans))
    chains = _by_trajectory(rows_of(AttemptRow, attempts))
    with ModelCalls(home, "scores", shard, roles, limits, lender="trajectories") as calls:
        workers = len(chains) if uses_batch_api(roles.scorer) else limits.in_flight
        crew = WorkerPool(shard, workers, limits.failure_share, progress or NullProgress())
        scored = await crew.each(chains, _Scoring(calls, goals), size=len)
        rows = [row for outcome in scored for row in outcome.rows]
        return ScoredShard(
            scores=[row.score for row in rows],
            members=[member for row in rows for member in row.members],
            calls=calls.ledger(),
            quarantine=_quarantined(scored),
        )


def rows_of(kind: type[R], rows: Iterable[R] | pa.Table) -> list[R]:
    """Rows as objects, whether they come from code or from the lake."""
    if isinstance(rows, pa.Table):
        return [kind.model_validate(row) for row in rows.to_pylist()]
    return list(rows)


@dataclass(frozen=True)
class _Done(Generic[D]):
    """What came of one prompt."""

    rows: list[D]
    quarantine: QuarantineRow | None


@dataclass(frozen=True)
class _TrajectoryResult(_Done[AttemptRow]):
    trajectory: TrajectoryRow


@dataclass(frozen=True)
class _Planning:
    calls: ModelCalls
    settings: LoopSettings

    async def __call__(self, prompt: PromptRow) -> _Done[PlanRow]:
        rows: list[PlanRow] = []
        reason = await quarantine_reason(self._plan(prompt, rows))
        return _Done(rows, _quarantine(prompt, "plans", reason))

    async def _plan(self, prompt: PromptRow, rows: list[PlanRow]) -> None:
        images = await _inputs(self.calls, prompt)
        request = PlanRequest(prompt.text, images)
        plan = (await self.calls.plan(CallSite(prompt.prompt_id), request)).answer
        check_plan(plan, self.settings.max_steps)
        rows.extend(plan_rows(prompt, plan, qualified_name(self.calls.roles.planner)))


@dataclass(frozen=True)
class _TrajectoryWork:
    calls: ModelCalls
    settings: LoopSettings
    plans: dict[str, list[PlanRow]]

    async def __call__(self, prompt: PromptRow) -> _TrajectoryResult:
        plan = self.plans.get(prompt.prompt_id, [])
        plan_id = plan[0].plan_id if plan else None
        record = TrajectoryRecorder(prompt, plan_id, self.calls.roles, self.settings)
        reason = await quarantine_reason(self._tell(prompt, plan, record))
        return _TrajectoryResult(
            record.attempts(),
            _quarantine(prompt, "trajectories", reason),
            record.trajectory(reason),
        )

    async def _tell(
        self, prompt: PromptRow, plan: list[PlanRow], record: TrajectoryRecorder
    ) -> None:
        if not plan:
            raise UnusableAnswerError("it has no plan")
        story = PlannedRequest(
            prompt.prompt_id, plan_from_rows(plan), await _inputs(self.calls, prompt)
        )
        async with aclosing(Loop(story, self.calls, self.settings).events()) as events:
            async for event in events:
                record.note(event)


@dataclass(frozen=True)
class _Scored:
    """The rows of one attempt."""

    score: ScoreRow
    members: list[MemberScoreRow]

    @classmethod
    def of(cls, attempt: AttemptRow, graded: EnsembleScore, scorer: str) -> "_Scored":
        members = [_member_row(attempt, opinion) for opinion in graded.opinions]
        return cls(_score_row(attempt, graded.answer, scorer), members)


@dataclass(frozen=True)
class _Scoring:
    calls: ModelCalls
    goals: dict[tuple[str, int], str]

    async def __call__(self, chain: list[AttemptRow]) -> _Done[_Scored]:
        rows: list[_Scored] = []
        reason = await quarantine_reason(self._score(chain, rows))
        return _Done([] if reason else rows, _quarantine(chain[0], "scores", reason))

    async def _score(self, chain: list[AttemptRow], rows: list[_Scored]) -> None:
        if uses_batch_api(self.calls.roles.scorer):  # all at once, to wait in one batch
            rows.extend(await asyncio.gather(*map(self._graded, chain)))
            return
        rows.extend([await self._graded(attempt) for attempt in chain])

    async def _graded(self, attempt: AttemptRow) -> _Scored:
        goal = self.goals.get((attempt.trajectory_id, attempt.step_number))
        if goal is None:
            raise UnusableAnswerError(f"no plan says what step {attempt.step_number} was to draw")
        source, image = attempt.source_image, attempt.image
        before = await self.calls.picture(source) if source else None
        after = await self.calls.picture(image)
        place = CallSite(attempt.prompt_id, attempt.step_number, attempt.iteration)
        graded = await self.calls.score(place, before, after, goal)
        return _Scored.of(attempt, graded, qualified_name(self.calls.roles.scorer))


async def _inputs(calls: ModelCalls, prompt: PromptRow) -> tuple[EncodedImage, ...]:
    """The pictures given with a request, decoded once so that a broken one is found here."""
    pictures = [await calls.picture(sha256) for sha256 in prompt.input_images]
    for picture in pictures:
        _ = picture.image
    return tuple(pictures)


def _score_row(attempt: AttemptRow, score: Score, scorer: str) -> ScoreRow:
    return ScoreRow(**_place(attempt), **_grades(score), scorer=scorer)


def _member_row(attempt: AttemptRow, opinion: MemberScore) -> MemberScoreRow:
    member = opinion.member
    return MemberScoreRow(
        **_place(attempt),
        **(_grades(opinion.score) if opinion.score else dict.fromkeys(GRADES)),
        member=member.name,
        scorer=qualified_name(member.scorer),
        weight=member.weight,
        refusal=opinion.refusal,
    )


def _place(attempt: AttemptRow) -> dict[str, Any]:
    return attempt.model_dump(
        include={"trajectory_id", "prompt_id", "shard", "step_number", "iteration"}
    )


def _grades(score: Score) -> dict[str, Any]:
    return {grade: getattr(score, grade) for grade in GRADES}


def _goals(
    trajectories: Sequence[TrajectoryRow], plans: Sequence[PlanRow]
) -> dict[tuple[str, int], str]:
    """What each step of each trajectory was to draw: the prompt of its plan's step."""
    steps = by_prompt(plans)
    return {
        (trajectory.trajectory_id, step.step_number): step.prompt
        for trajectory in trajectories
        for step in steps.get(trajectory.prompt_id, [])
        if step.plan_id == trajectory.plan_id and step.prompt is not None
    }


def _by_trajectory(attempts: Sequence[AttemptRow]) -> list[list[AttemptRow]]:
    chains: dict[str, list[AttemptRow]] = defaultdict(list)
    for attempt in attempts:
        chains[attempt.trajectory_id].append(attempt)
    return list(chains.values())


def _quarantine(of: PromptRow | AttemptRow, stage: str, reason: str | None) -> QuarantineRow | None:
    if reason is None:
        return None
    return QuarantineRow(prompt_id=of.prompt_id, shard=of.shard, stage=stage, reason=reason)


def _quarantined(outcomes: Sequence[WorkResult]) -> list[QuarantineRow]:
    return [outcome.quarantine for outcome in outcomes if outcome.quarantine]
