"""Schedules, off until they are switched on: grow the prompt bank, answer requests, improve agents.

The first two run every night, the third every week, or when a cron expression in the environment
says ($INTERLEAVE_GROW_CRON, $INTERLEAVE_ANSWER_CRON, $INTERLEAVE_IMPROVE_CRON; UTC). A partition
whose run failed is requested again, at most twice with the same profile and requests, runs that the
daemon repeats because their process died included.
"""

import os

import dagster as dg

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.node import NODES
from assets.curation.targets import read_growth, targets_of
from assets.generations.assets import GENERATION_SET
from assets.prompts.assets import shard_names
from assets.prompts.pack_loader import load_pack
from assets.prompts.rounds import recorded_rounds
from assets.trajectories.assets import SCORE_SET
from inference.calls.hashing import content_digest
from schemas.trajectories import SCORES

from .improve import finished_rounds
from .jobs import improve_agents, make_generations, refresh_data
from .retraining import MOST_RUNS
from .stages import is_up_to_date, up_to_date_partitions

INPUTS_TAG = "interleave/inputs"  # hash of what a scheduled run follows from


@dg.schedule(
    job=refresh_data,
    cron_schedule=os.environ.get("INTERLEAVE_GROW_CRON", "0 3 * * *"),
    execution_timezone="UTC",
)
def grow_bank(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> dg.RunRequest | dg.SkipReason:
    """Every night: the next shard of prompts, and everything downstream of it.

    Next is the first shard without scores, so a preview or a failed night leaves no gap behind: one
    that failed too often has to be run by hand before the bank grows again. While a run of it is
    not finished, there is no second one. Where the profile has `targets`, the bank grows until they
    are met, or bank or budget are not enough for them.
    """
    if reason := _stopped_growing(foundry, context.instance):
        return dg.SkipReason(reason)
    scored = context.instance.get_materialized_partitions(dg.AssetKey(SCORE_SET.name))
    names = shard_names(load_pack(foundry.settings.pack).name, len(scored) + 1)
    shard = next(name for name in names if name not in scored)
    context.instance.add_dynamic_partitions(str(SHARDS.name), [shard])
    found = _request(context.instance, foundry, refresh_data.name, shard)
    return found if isinstance(found, dg.RunRequest) else dg.SkipReason(found)


def _stopped_growing(foundry: FoundryResource, instance: dg.DagsterInstance) -> str | None:
    """Why targets ask for no more shards now; None: they do, or there are none."""
    names = list(targets_of(foundry))
    if not names or not foundry.home.lake.partitions(SCORES):
        return None
    if behind := [n for n in names if not is_up_to_date(NODES[n], foundry, instance)]:
        return f"{', '.join(behind)}: not up to date with the bank, so what is missing is not known"
    growth = read_growth(foundry, names)
    if growth.is_met:
        return f"targets are met: {growth.text}"
    return growth.problem(foundry.shards)


@dg.schedule(
    job=make_generations,
    cron_schedule=os.environ.get("INTERLEAVE_ANSWER_CRON", "0 5 * * *"),
    execution_timezone="UTC",
)
def answer_requests(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> list[dg.RunRequest] | dg.SkipReason:
    """Every night: the batches that are new, have changed, or failed less than three times."""
    instance = context.instance
    names = register_batches(instance, foundry)
    current = up_to_date_partitions(GENERATION_SET, foundry, instance, names)
    stale = [name for name in names if name not in current]
    found = [_request(instance, foundry, make_generations.name, name) for name in stale]
    waiting = [each for each in found if isinstance(each, str)]
    requests = [each for each in found if isinstance(each, dg.RunRequest)]
    reason = "; ".join(waiting) or "all answered"
    return requests or dg.SkipReason(f"{len(names)} batches, {reason}")


@dg.schedule(
    job=improve_agents,
    cron_schedule=os.environ.get("INTERLEAVE_IMPROVE_CRON", "0 1 * * 0"),
    execution_timezone="UTC",
)
def improve_weekly(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> dg.RunRequest | dg.SkipReason:
    """Every week: the next round, or the one that was interrupted."""
    if foundry.settings.rounds is None:
        return dg.SkipReason(f"profile {foundry.settings.name} has no section rounds")
    runs = context.instance.get_runs(dg.RunsFilter(job_name=improve_agents.name))
    if running := [run.run_id for run in runs if not run.is_finished]:
        return dg.SkipReason(f"run {running[0]} is not finished")
    finished = finished_rounds(foundry)
    unfinished = len(recorded_rounds(foundry.home)) > len(finished)
    if finished and not finished[-1].continues and not unfinished:
        last = finished[-1]
        return dg.SkipReason(f"round {last.round} did not help: {last.why}")
    return dg.RunRequest(tags={"dagster/max_retries": str(MOST_RUNS - 1)})


def _request(
    instance: dg.DagsterInstance, foundry: FoundryResource, job: str, partition: str
) -> dg.RunRequest | str:
    """The request for a partition's run; why there is none, where one runs or too many failed."""
    if _is_running(instance, job, partition):
        return f"the run of {partition} is not finished"
    batches = GENERATION_SET.partitions if job == make_generations.name else None
    origin = batches.origin(foundry, partition) if batches else None
    tags = {INPUTS_TAG: content_digest([foundry.settings, origin])[:12]}
    status = dg.DagsterRunStatus.FAILURE
    failed = instance.get_runs(
        dg.RunsFilter(
            job_name=job, statuses=[status], tags={"dagster/partition": partition, **tags}
        )
    )
    if len(failed) >= MOST_RUNS:
        name = failed[0].run_id
        return f"{partition}: {len(failed)} runs failed, last {name}: see why, and run it by hand"
    tags["dagster/max_retries"] = str(MOST_RUNS - 1 - len(failed))
    # Several requests of one tick need a key each.
    return dg.RunRequest(partition_key=partition, run_key=partition, tags=tags)


def _is_running(instance: dg.DagsterInstance, job: str, partition: str) -> bool:
    """Whether a run of a job on this partition is queued or not finished."""
    runs = instance.get_runs(dg.RunsFilter(job_name=job, tags={"dagster/partition": partition}))
    return any(not run.is_finished for run in runs)


def register_batches(instance: dg.DagsterInstance, foundry: FoundryResource) -> list[str]:
    """Add the batches of the profile's requests as partitions, if it has any; their names."""
    batches = GENERATION_SET.partitions
    if batches is None or not GENERATION_SET.in_profile(foundry.settings):
        return []
    return batches.register(foundry, instance)
