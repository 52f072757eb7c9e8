"""Plans of a shard, the planner-critic loop over them, and scores of every attempt."""

import asyncio
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
    Role,
)

from ..core import figures
from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, model_call_costs
from ..core.node import node
from ..core.progress import progress_of
from .agreement import agreement_metadata
from .gallery import contact_sheet_png
from .trajectory_views import pick_showcase

_LEDGER = (MODEL_CALLS, QUARANTINE)


def _models(*roles: Role) -> Callable[[FoundryResource, dg.DagsterInstance], list[str]]:
    """Names of the models whose answers an asset contains: part of its fingerprint."""
    return lambda foundry, _: [qualified_name(getattr(foundry.roles, role)) for role in roles]


PLAN_SET = node(
    name="plans",
    group="trajectories",
    description="The planner's steps for every prompt of a shard.",
    tables=(PLANS,),
    ledger=_LEDGER,
    deps=("prompts",),
    sections=("loop",),
    inputs=_models("planner"),
    sharded=True,
    pool="agents",
)
TRAJECTORY_SET = node(
    name="trajectories",
    group="trajectories",
    description="The planner-critic loop over a shard: every attempt, its image and its verdict.",
    tables=(TRAJECTORIES, ATTEMPTS),
    ledger=_LEDGER,
    deps=("prompts", "plans"),
    sections=("loop",),
    inputs=_models("generator", "critic", "scorer"),
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
    inputs=_models("scorer"),
    sharded=True,
    pool="agents",
)


@dg.asset(**PLAN_SET.asset_args())
def plans(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    planned = asyncio.run(
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
    return PLAN_SET.record(context, foundry, tables, model_call_costs(planned.calls))


@dg.asset(**TRAJECTORY_SET.asset_args())
def trajectories(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    shard = context.partition_key
    run = asyncio.run(
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
        TRAJECTORIES: run.trajectories,
        ATTEMPTS: run.attempts,
        MODEL_CALLS: run.calls,
        QUARANTINE: run.quarantine,
    }
    result = TRAJECTORY_SET.record(context, foundry, tables, model_call_costs(run.calls))
    images = _image_metadata(foundry, shard, Counter(t.status for t in run.trajectories))
    return result._replace(metadata={**(result.metadata or {}), **images})


def _image_metadata(foundry: FoundryResource, shard: str, statuses: Counter[str]) -> dict[str, Any]:
    """A plot of the statuses, and a contact sheet of some trajectories of the shard."""
    sheet = contact_sheet_png(foundry.home, pick_showcase(foundry.home, 6, shard))
    return {
        "status": image_metadata(figures.status_counts(statuses), "Trajectories by status"),
        "stories": image_metadata(sheet, "Some trajectories of this shard"),
    }


@dg.asset(**SCORE_SET.asset_args())
def scores(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    shard = context.partition_key
    scored = asyncio.run(
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
        foundry.home.lake.delete(MEMBER_SCORES, shard)  # the scorer is no longer an ensemble
    metadata = model_call_costs(scored.calls) | agreement_metadata(scored.members)
    return SCORE_SET.record(context, foundry, tables, metadata)
