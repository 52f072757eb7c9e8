"""Plans that are sampled again where the planner's own, its likeliest one, was wrong.

The right ones among them teach the planner what it can do but seldom does (rejection sampling).
Which plans are right the pack's exact grader says; no image is drawn for it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from inference.backends.checkpoint.backend import (
    CheckpointBackend,
    CheckpointModel,
    CheckpointPlanner,
)
from inference.calls.ask import CallSite, PlanSamples
from inference.calls.progress import Progress
from inference.calls.retry import CallFailedError, RetryingCaller
from inference.calls.worker_pool import WorkerPool
from inference.events import plan_from_rows, plan_rows
from inference.loop import check_plan
from inference.roles import (
    Plan,
    PlanRequest,
    PlanSampler,
    RequestOutcome,
    UnusableAnswerError,
    qualified_name,
)
from inference.sketch_world.grader import SketchGrader
from schemas.prompts import PromptRow
from schemas.trajectories import MODEL_CALLS, PLANS, ModelCallRow, PlanRow
from training.registry import CheckpointRegistry

from ..core.foundry import FoundryResource
from ..prompts.rounds import RoundPlan, limits_of_shard

ASSET = "round_data"  # in whose journals and ledger the calls are
_GRADER = SketchGrader()


@dataclass(frozen=True)
class RetriedPlans:
    """Right plans that were found by asking again.

    `wrong`: requests of the round without a right plan before.
    """

    rows: list[PlanRow]
    calls: list[ModelCallRow]
    wrong: int

    @property
    def found(self) -> int:
        """Requests that have a right plan now."""
        return len({row.prompt_id for row in self.rows})


def right_plans(foundry: FoundryResource, shards: Sequence[str]) -> set[str]:
    """Ids of the plans of some shards that lead to what their requests ask for."""
    return set(asyncio.run(_right_plans(foundry, shards)))


def _plan_sampler(foundry: FoundryResource, plan: RoundPlan) -> PlanSampler:
    folder = CheckpointRegistry(foundry.home).usable_folder(*plan.planner.split("@"))
    model = CheckpointModel(folder, foundry.settings.section(CheckpointBackend))
    return CheckpointPlanner(model, "sampled")


async def retry_plans(
    foundry: FoundryResource,
    plan: RoundPlan,
    tries: int,
    progress: Progress,
    sampler: PlanSampler | None = None,
) -> RetriedPlans:
    """Sample plans for the requests of a round without a right one, until one is right.

    Finished calls are journaled by shard, and never repeated; an answer without a plan is a try.

    Args:
        tries: for each request, at most.
        sampler: None: the planner that the round began with, in this process.

    Raises:
        FoundryError: there is no such checkpoint any more.
    """
    home, limits = foundry.home, limits_of_shard(foundry, plan.shards[0])
    sampler = sampler or _plan_sampler(foundry, plan)
    planned = set((await _right_plans(foundry, plan.shards)).values())
    prompts = [prompt for shard in plan.shards for prompt in foundry.prompts_of(shard)]
    wrong = [prompt for prompt in prompts if prompt.prompt_id not in planned]
    caller = RetryingCaller(limits)
    with ExitStack() as stack:
        calls = {
            shard: stack.enter_context(PlanSamples(home, ASSET, shard, sampler, caller))
            for shard in plan.shards
        }

        async def retry(prompt: PromptRow) -> list[PlanRow]:
            return await _retry(calls[prompt.shard], prompt, tries, foundry.settings.loop.max_steps)

        pool = WorkerPool(f"round {plan.number}", limits.in_flight, 1.0, progress)
        found, _ = await pool.map(
            retry, wrong, usage=lambda prompt: calls[prompt.shard].usage(prompt.prompt_id)
        )
        ledgers = {shard: each.ledger() for shard, each in calls.items()}
    for shard, ledger in ledgers.items():
        home.lake.write(MODEL_CALLS, ledger, f"{ASSET}-{shard}")
    rows = [row for each in found for row in each]
    return RetriedPlans(rows, [call for each in ledgers.values() for call in each], len(wrong))


async def _retry(
    calls: PlanSamples, prompt: PromptRow, tries: int, max_steps: int
) -> list[PlanRow]:
    """The rows of the first right plan; none after so many wrong ones."""
    request = PlanRequest(prompt.text)
    for draw in range(1, tries + 1):
        try:
            plan = (await calls.sample(CallSite(prompt.prompt_id), request, draw)).answer
            check_plan(plan, max_steps)
        except (UnusableAnswerError, CallFailedError):
            continue
        if await _is_right(prompt, plan):
            return plan_rows(prompt, plan, qualified_name(calls.roles))
    return []


async def _right_plans(foundry: FoundryResource, shards: Sequence[str]) -> dict[str, str]:
    """Right plan -> its request."""
    right: dict[str, str] = {}
    for shard in shards:
        prompts = {prompt.prompt_id: prompt for prompt in foundry.prompts_of(shard)}
        steps: dict[str, list[PlanRow]] = {}
        for row in foundry.rows(PLANS, shard):
            steps.setdefault(row.plan_id, []).append(row)
        for plan_id, rows in steps.items():
            prompt = prompts[rows[0].prompt_id]
            if await _is_right(prompt, plan_from_rows(rows)):
                right[plan_id] = prompt.prompt_id
    return right


async def _is_right(prompt: PromptRow, plan: Plan) -> bool:
    outcome = RequestOutcome(prompt.prompt_id, PlanRequest(prompt.text), plan)
    grade = await _GRADER.grade_plan(outcome)
    return bool(grade.valid and grade.correct)
