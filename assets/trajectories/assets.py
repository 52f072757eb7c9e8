"""Plans of a shard, the planner-critic loop over them, scores of every attempt; their checks."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations
from math import nan
from statistics import fmean
from typing import TYPE_CHECKING, Any

import dagster as dg

from inference import shard as engine
from inference.generators import roles_of_prompt
from inference.roles import qualified_name
from schemas import Table
from schemas.prompts import PROMPTS
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

from ..core import checks, plotting
from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, model_call_costs, table_metadata
from ..core.node import Node
from ..core.progress import progress_of
from ..prompts.rounds import limits_of_shard, roles_of_shard, rounds_of_shards
from ..reviews.assets import agreement_metadata as people_agreement
from ..reviews.assets import shard_labels
from .contact_sheet import contact_sheet
from .estimate import loop_model_names
from .forecast import forecast_metadata
from .trajectory_views import load_trajectories, pick_showcase

if TYPE_CHECKING:
    import pandas as pd

_LEDGER = (MODEL_CALLS, QUARANTINE)
_STEP = ["trajectory_id", "step_number"]


def _models(*roles: Role) -> Callable[[FoundryResource], list[str]]:
    """Names of the models whose answers an asset contains: part of its code version."""
    return lambda foundry: [qualified_name(getattr(foundry.roles, role)) for role in roles]


def _round_agents(foundry: FoundryResource, shards: Sequence[str]) -> dict[str, object]:
    """Shards that a round made -> the checkpoints that it began with."""
    made = rounds_of_shards(foundry.home, shards)
    return {shard: plan.agents for shard, plan in made.items()}


def _loop_models(foundry: FoundryResource) -> list[str]:
    """Those of all shards: who draws a prompt of a mix follows from the prompt."""
    drawing: tuple[Role, ...] = () if foundry.roles.mix else ("generator",)
    return _models(*drawing, "critic", "scorer")(foundry)


def _shard_models(foundry: FoundryResource, shards: Sequence[str]) -> dict[str, object]:
    """`_round_agents`; with a mix also who draws a shard's prompts, so that another mix leaves
    shards alone whose prompts it gives to the same generators."""
    agents, roles = _round_agents(foundry, shards), foundry.roles
    if not roles.mix:
        return agents
    prompts = foundry.home.lake.read(PROMPTS, shards, ["shard", "prompt_id"]).to_pylist()
    drawing: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for prompt in prompts:
        own = roles_of_prompt(roles, prompt["prompt_id"])
        drawing[prompt["shard"]][prompt["prompt_id"]] = qualified_name(own.generator)
    return {shard: {"agents": agents.get(shard), "generators": drawing[shard]} for shard in shards}


PLAN_SET = Node(
    name="plans",
    group="trajectories",
    description="The planner's plan for every prompt of a shard.",
    tables=(PLANS,),
    ledger=_LEDGER,
    deps=("prompts",),
    sections=("loop",),
    config=_models("planner"),
    shard_inputs=_round_agents,
    sharded=True,
    pool="agents",
)
TRAJECTORY_SET = Node(
    name="trajectories",
    group="trajectories",
    description="The planner-critic loop over a shard; its attempts, each with image and verdict, "
    "are the table `attempts`.",
    tables=(TRAJECTORIES, ATTEMPTS),
    ledger=_LEDGER,
    deps=("prompts", "plans"),
    arrows=("plans",),
    sections=("loop",),
    config=_loop_models,
    shard_inputs=_shard_models,
    sharded=True,
    pool="generator",
)
SCORE_SET = Node(
    name="scores",
    group="trajectories",
    description="Semantics, quality and overall grade of every attempt of a shard.",
    tables=(SCORES, MEMBER_SCORES),
    ledger=_LEDGER,
    deps=("plans", "trajectories"),
    arrows=("trajectories",),
    config=_models("scorer"),
    sharded=True,
    pool="agents",
)


@dg.asset(**PLAN_SET.asset_args())
def plans(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    shard, loop, progress = context.partition_key, foundry.settings.loop, progress_of(context)
    roles, limits = roles_of_shard(foundry, shard), limits_of_shard(foundry, shard)
    follows = context.job_def.has_node_named(TRAJECTORY_SET.name)
    ahead = follows and foundry.settings.is_hosted and roles is foundry.roles
    prompts, home = foundry.prompts_of(shard), foundry.home
    work = engine.plan_shard(prompts, roles, home, loop, limits, progress, begin_loops=ahead)
    planned = asyncio.run(work)
    tables = {PLANS: planned.plans, MODEL_CALLS: planned.calls, QUARANTINE: planned.quarantine}
    return PLAN_SET.record(context, foundry, tables, model_call_costs(planned.calls))


@dg.asset(**TRAJECTORY_SET.asset_args())
def trajectories(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    shard, home, loop = context.partition_key, foundry.home, foundry.settings.loop
    roles, limits = roles_of_shard(foundry, shard), limits_of_shard(foundry, shard)
    prompts, plans = foundry.prompts_of(shard), foundry.rows(PLANS, shard)
    progress = progress_of(context)
    work = engine.run_shard(prompts, plans, roles, home, shard, loop, limits, progress)
    run = asyncio.run(work)
    tables = {
        TRAJECTORIES: run.trajectories,
        ATTEMPTS: run.attempts,
        MODEL_CALLS: run.calls,
        QUARANTINE: run.quarantine,
    }
    rows = TRAJECTORY_SET.write(context, foundry, tables)
    statuses = plotting.status_counts(Counter(row.status for row in run.trajectories))
    views = load_trajectories(home, pick_showcase(home, 6, [shard]), [shard])
    sheet = plotting.small_png(contact_sheet(views, image_size=128), colours=255)
    images = {
        "stories": image_metadata(sheet, "Some trajectories of this shard"),
        "status": image_metadata(statuses, "Trajectories by status"),
    }
    forecast = forecast_metadata(foundry, context.instance, loop_model_names(foundry))
    drawn = Counter(row.generator for row in run.attempts)
    metadata = images | model_call_costs(run.calls) | forecast | {"generators": dict(drawn)}
    return TRAJECTORY_SET.describe(context, foundry, rows, metadata)


@dg.asset(**SCORE_SET.asset_args())
def scores(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    shard, home, limits = context.partition_key, foundry.home, foundry.settings.limits
    attempts, trajectories = foundry.rows(ATTEMPTS, shard), foundry.rows(TRAJECTORIES, shard)
    plans, roles, progress = foundry.rows(PLANS, shard), foundry.roles, progress_of(context)
    work = engine.score_shard(attempts, trajectories, plans, roles, home, shard, limits, progress)
    scored = asyncio.run(work)
    tables: dict[Table, Any] = {SCORES: scored.scores}
    tables |= {MODEL_CALLS: scored.calls, QUARANTINE: scored.quarantine}
    if scored.members:
        tables[MEMBER_SCORES] = scored.members
    else:
        home.lake.delete(MEMBER_SCORES, shard)  # the scorer is no longer an ensemble
    rows = SCORE_SET.write(context, foundry, tables)
    accept_at_least = foundry.settings.curation.critic.verdicts.accept_at_least
    people = people_agreement(shard_labels(home, [shard], accept_at_least))
    metadata = model_call_costs(scored.calls) | _member_metadata(scored.members) | people
    return SCORE_SET.describe(context, foundry, rows, metadata)


def _member_metadata(rows: Sequence[MemberScoreRow]) -> dict[str, Any]:
    """Agreement of an ensemble's members and how often each refused; empty without rows."""
    if not rows:
        return {}
    refusals = Counter({row.member: 0 for row in rows})
    refusals.update(row.member for row in rows if row.refusal is not None)
    pairs = [{name: _short(value) for name, value in pair.items()} for pair in agreements(rows)]
    refused = [{"member": name, "refused": refusals[name]} for name in sorted(refusals)]
    return {"agreement": table_metadata(pairs), "refusals": table_metadata(refused)}


def _short(value: object) -> object:
    return f"{value:.2f}" if isinstance(value, float) else value


def agreements(rows: Sequence[MemberScoreRow]) -> list[dict[str, Any]]:
    """How far every two members agree over the attempts that both scored (0-10), sorted by name.

    NaN: fewer than two attempts, for correlations (-1 to 1) also a member whose scores are equal.
    """
    import pandas as pd

    columns = [*_STEP, "iteration", "member", "overall"]
    frame = pd.DataFrame([row.model_dump(include=set(columns)) for row in rows], columns=columns)
    frame = frame.astype({"overall": float})  # None: the member refused
    overall = frame.pivot(index=[*_STEP, "iteration"], columns="member", values="overall")
    return [_compare(overall[list(pair)].dropna()) for pair in combinations(overall.columns, 2)]


def _compare(both: "pd.DataFrame") -> dict[str, Any]:
    """Compare two columns of overall scores, indexed by step and iteration.

    The best attempt of a step with several is the earliest of equals, as in the loop.
    """
    one, other = both.columns
    steps = [step for _, step in both.sort_index().groupby(_STEP) if len(step) > 1]
    same = [step[one].idxmax() == step[other].idxmax() for step in steps]
    pearson: Any = both.corr("pearson").loc[one, other]
    spearman: Any = both.corr("spearman").loc[one, other]
    return {
        "members": f"{one} and {other}",
        "attempts": len(both),
        "Pearson": float(pearson),
        "Spearman": float(spearman),
        "mean difference": float((both[one] - both[other]).abs().mean()),
        "same best attempt": fmean(same) if same else nan,
    }


def _images_intact(foundry: FoundryResource, shard: str | None) -> checks.Violations:
    partitions = None if shard is None else [shard]
    data = foundry.home.lake.read(ATTEMPTS, partitions, columns=["image", "source_image"])
    return checks.damaged_images(foundry.home.images, checks.distinct_strings(data))


plans_checks = checks.blocking_checks(PLAN_SET)
trajectories_checks = checks.blocking_checks(
    TRAJECTORY_SET,
    images_intact=("Every image is in the store and hashes to its name", _images_intact),
)
scores_checks = checks.blocking_checks(SCORE_SET)
