"""The three engines: plan, run and score the prompts of one shard.

Each runs on one event loop, makes its calls through the shard's journal, and can be killed at any
time and run again: finished calls are found, the others made, the rows come out the same.
It raises FoundryError when too many prompts were quarantined, or the lake cannot be written.
"""

import asyncio
from asyncio import Event
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from schemas import BadImageError, FoundryError, Row
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

from .calls.ask import CallSite, ModelCalls
from .calls.progress import Progress
from .calls.retry import summarize_error
from .calls.scoring import score_calls
from .calls.worker_pool import WorkerPool
from .events import ImageGenerated, TrajectoryRecorder, plan_from_rows, plan_rows
from .generators import roles_of_prompt
from .loop import Loop, check_plan
from .roles import (
    BackendError,
    PlanRequest,
    Roles,
    Score,
    UnusableAnswerError,
    qualified_name,
    uses_batch_api,
)
from .settings import Limits, LoopSettings

R = TypeVar("R", bound=Row)
T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class ShardResult:
    """Rows of a shard; tables that an engine does not write are empty.

    Its repr is short because asyncio formats the result of every run.
    """

    plans: list[PlanRow] = field(default_factory=list)
    trajectories: list[TrajectoryRow] = field(default_factory=list)
    attempts: list[AttemptRow] = field(default_factory=list)
    scores: list[ScoreRow] = field(default_factory=list)
    members: list[MemberScoreRow] = field(default_factory=list)
    calls: list[ModelCallRow] = field(default_factory=list)
    quarantine: list[QuarantineRow] = field(default_factory=list)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(rows)} {table}" for table, rows in vars(self).items() if rows)
        return f"{type(self).__name__}({counts})"


async def plan_shard(
    prompts: Sequence[PromptRow],
    roles: Roles,
    home: Home,
    settings: LoopSettings,
    limits: Limits,
    progress: Progress | None = None,
    begin_loops: bool = False,
) -> ShardResult:
    """Plan every prompt. `begin_loops`: see `_loops_ahead`."""
    if not prompts:
        return ShardResult()
    shard = prompts[0].shard
    with ModelCalls(home, "plans", shard, roles, limits) as calls:
        workers = len(prompts) if uses_batch_api(roles.planner) else limits.in_flight
        pool = WorkerPool(shard, workers, limits.failure_share, progress)
        loops = ModelCalls(home, "trajectories", shard, roles, calls.caller)
        ahead = _loops_ahead(loops, settings, limits.in_flight)
        async with ahead if begin_loops else nullcontext(lambda prompt, rows: None) as begin:
            planning = pool.map(
                lambda prompt: _or_quarantine(
                    "plans", prompt, _plan(calls, settings, prompt, begin)
                ),
                prompts,
                usage=lambda prompt: calls.usage(prompt.prompt_id),
            )
            [planned] = await asyncio.gather(planning, return_exceptions=True)
        if isinstance(planned, BaseException):
            raise planned
        plans, quarantine = planned
        rows = list(chain.from_iterable(plans))
        return ShardResult(plans=rows, calls=calls.ledger(), quarantine=quarantine)


async def run_shard(
    prompts: Sequence[PromptRow],
    plans: Iterable[PlanRow],
    roles: Roles,
    home: Home,
    shard: str,
    settings: LoopSettings,
    limits: Limits,
    progress: Progress | None = None,
) -> ShardResult:
    """Run the loop over every prompt; one without a plan becomes a quarantined trajectory.

    Of a mix of generators one draws all images of a prompt.
    """
    plan_of = _group(plans, "prompt_id")
    recorders = []
    for prompt in prompts:
        own, rows = roles_of_prompt(roles, prompt.prompt_id), plan_of.get(prompt.prompt_id, [])
        recorders.append(TrajectoryRecorder(prompt, rows, own, settings))
    with ModelCalls(home, "trajectories", shard, roles, limits) as calls:
        pool = WorkerPool(shard, limits.in_flight, limits.failure_share, progress)
        _, quarantine = await pool.map(
            lambda run: _or_quarantine("trajectories", run[0], _run(calls, *run)),
            list(zip(prompts, recorders, strict=True)),
            size=lambda run: len(run[1].plan),
            usage=lambda run: calls.usage(run[0].prompt_id),
        )
        reasons = {row.prompt_id: row.reason for row in quarantine}
        return ShardResult(
            trajectories=[run.trajectory(reasons.get(run.prompt.prompt_id)) for run in recorders],
            attempts=[row for run in recorders for row in run.attempts()],
            calls=calls.ledger(),
            quarantine=quarantine,
        )


async def score_shard(
    attempts: Iterable[AttemptRow],
    trajectories: Iterable[TrajectoryRow],
    plans: Iterable[PlanRow],
    roles: Roles,
    home: Home,
    shard: str,
    limits: Limits,
    progress: Progress | None = None,
) -> ShardResult:
    """Score every attempt against its step's plan prompt.

    Scores that `on_exhausted: best` asked for are taken from the loop's journal.
    """
    goals = _goals(trajectories, plans)
    attempted = list(_group(attempts, "trajectory_id").values())
    with ModelCalls(home, "scores", shard, roles, limits) as calls:
        calls.reuse("trajectories", shard)  # the loop may have asked for scores
        workers = len(attempted) if uses_batch_api(roles.scorer) else limits.in_flight
        pool = WorkerPool(shard, workers, limits.failure_share, progress)
        scores, quarantine = await pool.map(
            lambda rows: _or_quarantine("scores", rows[0], _score_all(calls, goals, rows)),
            attempted,
            size=len,
            usage=lambda rows: calls.usage(rows[0].prompt_id),
        )
        return ShardResult(
            scores=[score for score, _ in chain.from_iterable(scores)],
            members=[row for _, members in chain.from_iterable(scores) for row in members],
            calls=calls.ledger(),
            quarantine=quarantine,
        )


async def _or_quarantine(
    stage: str, prompt: PromptRow | AttemptRow, work: Awaitable[T]
) -> T | QuarantineRow:
    try:
        return await work
    except Exception as error:  # a bug that one prompt meets must not fail the others
        if isinstance(error, FoundryError) and not isinstance(error, BadImageError):
            raise  # such as a lake that cannot be written: not the prompt's fault
        ids = {"prompt_id": prompt.prompt_id, "shard": prompt.shard}
        return QuarantineRow(**ids, stage=stage, reason=summarize_error(error))


_Begin = Callable[[PromptRow, list[PlanRow]], object]


@asynccontextmanager
async def _loops_ahead(
    calls: ModelCalls, settings: LoopSettings, workers: int
) -> AsyncIterator[_Begin]:
    """Begins the loop over each plan that it is given, so that the generator works while others are
    planned. At the end calls under way are finished: `run_shard` finds them, and goes on."""
    is_over, slots = Event(), asyncio.Semaphore(workers)

    async def run(prompt: PromptRow, rows: list[PlanRow]) -> None:
        own = roles_of_prompt(calls.roles, prompt.prompt_id)
        async with slots:
            with suppress(Exception):  # `run_shard` meets it again
                try:
                    recorder = TrajectoryRecorder(prompt, rows, own, settings)
                    await _run(calls, prompt, recorder, is_over)
                except BackendError:  # nor can any other call succeed
                    is_over.set()

    with calls:
        async with asyncio.TaskGroup() as group:
            yield lambda prompt, rows: group.create_task(run(prompt, rows))
            is_over.set()


async def _plan(
    calls: ModelCalls, settings: LoopSettings, prompt: PromptRow, begin: _Begin
) -> list[PlanRow]:
    request = PlanRequest(prompt.text, await _input_images(calls, prompt))
    plan = (await calls.plan(CallSite(prompt.prompt_id), request)).answer
    check_plan(plan, settings.max_steps)
    rows = plan_rows(prompt, plan, qualified_name(calls.roles.planner))
    begin(prompt, rows)
    return rows


async def _run(
    calls: ModelCalls, prompt: PromptRow, recorder: TrajectoryRecorder, is_over: Event | None = None
) -> None:
    """The loop over a prompt's plan, until `is_over` is set."""
    if not recorder.plan:
        raise UnusableAnswerError("it has no plan")
    images, plan = await _input_images(calls, prompt), plan_from_rows(recorder.plan)
    own = calls.with_roles(recorder.roles)
    loop = Loop(own, recorder.settings, prompt.prompt_id, plan, images)
    async with aclosing(loop.events()) as events:
        async for event in events:
            recorder.note(event)
            if is_over and is_over.is_set() and not isinstance(event, ImageGenerated):
                return  # its verdict, too, is due before anything is drawn


async def _input_images(calls: ModelCalls, prompt: PromptRow) -> tuple[EncodedImage, ...]:
    """A request's images, decoded once so that a broken one is an error here."""
    images = [await calls.image(sha256) for sha256 in prompt.input_images]
    for image in images:
        _ = image.image
    return tuple(images)


# Trajectory and step -> the prompt of its plan's step.
_Goals = dict[tuple[str, int], str]
# An attempt's score, and those of the members of an ensemble.
_Scores = tuple[ScoreRow, list[MemberScoreRow]]


async def _score_all(
    calls: ModelCalls, goals: _Goals, attempts: Sequence[AttemptRow]
) -> list[_Scores]:
    scores = (_score(calls, goals, attempt) for attempt in attempts)
    if uses_batch_api(calls.roles.scorer):
        return await asyncio.gather(*scores)  # all at once, to wait in one batch
    return [await score for score in scores]


async def _score(calls: ModelCalls, goals: _Goals, attempt: AttemptRow) -> _Scores:
    goal = goals.get((attempt.trajectory_id, attempt.step_number))
    if goal is None:
        raise UnusableAnswerError(f"step {attempt.step_number} has no prompt in the plan")
    before = await calls.image(attempt.source_image) if attempt.source_image else None
    after = await calls.image(attempt.image)
    site = CallSite(attempt.prompt_id, attempt.step_number, attempt.iteration)
    result = await calls.score(site, before, after, goal)
    keys = {"trajectory_id", "prompt_id", "shard", "step_number", "iteration"}
    key = attempt.model_dump(include=keys)
    members = [
        MemberScoreRow(
            **key,
            **_grades(each.score),
            member=each.member.name,
            scorer=qualified_name(each.member.scorer),
            weight=each.member.weight,
            refusal=each.refusal,
            calls=score_calls(each.member.scorer),
        )
        for each in result.members
    ]
    scorer = calls.roles.scorer
    made_by = {"scorer": qualified_name(scorer), "calls": score_calls(scorer)}
    return ScoreRow(**key, **_grades(result.score), **made_by), members


def _grades(score: Score | None) -> dict[str, Any]:
    return {grade: getattr(score, grade, None) for grade in GRADES}


def _goals(trajectories: Iterable[TrajectoryRow], plans: Iterable[PlanRow]) -> _Goals:
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
    return groups
