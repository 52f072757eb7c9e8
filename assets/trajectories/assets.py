"""The stories of a shard: plans, the planner-critic loop over them, and scores of every attempt."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import dagster as dg

from inference import shard as engine
from inference.roles import qualified_name
from schemas import Table
from schemas.trajectories import (
    ATTEMPTS,
    MEMBER_SCORES,
    MODEL_CALLS,
    PLANS,
    QUARANTINE,
    SCORES,
    TRAJECTORIES,
    MemberScoreRow,
    Role,
)

from ..core import figures
from ..core.costs import spent
from ..core.foundry import FoundryResource, run_async
from ..core.node import node, picture, sample
from ..core.progress import progress_of
from .agreement import agreements
from .gallery import sheet_png
from .trajectory_views import pick_showcase

_LEDGER = (MODEL_CALLS, QUARANTINE)


def _models(*roles: Role) -> Callable[[FoundryResource, dg.DagsterInstance], list[str]]:
    """Whose answers an asset holds: another model is another asset."""
    return lambda foundry, _: [qualified_name(getattr(foundry.roles, role)) for role in roles]


PLAN_SET = node(
    name="plans",
    group="trajectories",
    description="The planner's steps for every prompt of a shard.",
    tables=(PLANS,),
    ledger=_LEDGER,
    deps=("prompts",),
    sections=("loop",),
    facts=_models("planner"),
    sharded=True,
    pool="agents",
)
TRAJECTORY_SET = node(
    name="trajectories",
    group="trajectories",
    description="The planner-critic loop over a shard: every attempt, its picture and its verdict.",
    tables=(TRAJECTORIES, ATTEMPTS),
    ledger=_LEDGER,
    deps=("prompts", "plans"),
    sections=("loop",),
    facts=_models("generator", "critic", "scorer"),
    sharded=True,
    pool="generator",
)
SCORE_SET = node(
    name="scores",
    group="trajectories",
    description="Semantics, quality and overall grade (0-10) of every attempt.",
    tables=(SCORES, MEMBER_SCORES),
    ledger=_LEDGER,
    deps=("plans", "trajectories"),
    facts=_models("scorer"),
    sharded=True,
    pool="agents",
)


@dg.asset(**PLAN_SET.asset_args())
def plans(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    planned = run_async(
        engine.plan_shard(
            foundry.prompts_of(context.partition_key),
            foundry.roles,
            foundry.home,
            foundry.settings.loop,
            foundry.settings.limits,
            progress_of(context),
        )
    )
    tables = {PLANS: planned.plans, MODEL_CALLS: planned.calls, QUARANTINE: planned.quarantine}
    return PLAN_SET.record(context, foundry, tables, spent(planned.calls))


@dg.asset(**TRAJECTORY_SET.asset_args())
def trajectories(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    shard = context.partition_key
    told = run_async(
        engine.run_shard(
            foundry.prompts_of(shard),
            foundry.rows(PLANS, shard),
            foundry.roles,
            foundry.home,
            shard,
            foundry.settings.loop,
            foundry.settings.limits,
            progress_of(context),
        )
    )
    tables = {
        TRAJECTORIES: told.trajectories,
        ATTEMPTS: told.attempts,
        MODEL_CALLS: told.calls,
        QUARANTINE: told.quarantine,
    }
    result = TRAJECTORY_SET.record(context, foundry, tables, spent(told.calls))
    pictures = _pictures(foundry, shard, Counter(t.status for t in told.trajectories))
    return result._replace(metadata={**(result.metadata or {}), **pictures})


def _pictures(foundry: FoundryResource, shard: str, statuses: Counter[str]) -> dict[str, Any]:
    """How the stories ended, and some of them to look at."""
    shown = pick_showcase(foundry.home, 6, shard)
    return {
        "status": picture(figures.status_counts(statuses), "Trajectories by status"),
        "stories": picture(sheet_png(foundry.home, shown), "Some stories of this shard"),
    }


@dg.asset(**SCORE_SET.asset_args())
def scores(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    shard = context.partition_key
    scored = run_async(
        engine.score_shard(
            foundry.rows(ATTEMPTS, shard),
            foundry.rows(TRAJECTORIES, shard),
            foundry.rows(PLANS, shard),
            foundry.roles,
            foundry.home,
            shard,
            foundry.settings.limits,
            progress_of(context),
        )
    )
    tables: dict[Table, Any] = {
        SCORES: scored.scores,
        MODEL_CALLS: scored.calls,
        QUARANTINE: scored.quarantine,
    }
    if scored.members:
        tables[MEMBER_SCORES] = scored.members
    else:
        foundry.home.lake.delete(MEMBER_SCORES, shard)  # of an ensemble that is one no more
    metadata = spent(scored.calls) | _agreement(scored.members)
    return SCORE_SET.record(context, foundry, tables, metadata)


def _agreement(members: list[MemberScoreRow]) -> dict[str, Any]:
    """How far the members of an ensemble agree, and how often each refused."""
    if not members:
        return {}
    found = agreements(members)
    refusals = Counter(row.member for row in members if row.refusal is not None)
    names = sorted({row.member for row in members})
    return {
        "agreement": sample([agreement.shown() for agreement in found]),
        "agreement_plot": picture(
            figures.agreement_map(names, {a.members: a.spearman for a in found}),
            "Rank correlation of the members' overall scores",
        ),
        "refusals": sample([{"member": name, "refused": refusals[name]} for name in names]),
    }
