"""Schedules, off until they are switched on: grow the prompt bank, answer requests.

Both run every night, or when a cron expression in the environment says ($INTERLEAVE_GROW_CRON,
$INTERLEAVE_ANSWER_CRON; UTC).
"""

import os

import dagster as dg

from assets.core.foundry import SHARDS, FoundryResource
from assets.generations.assets import GENERATION_SET
from assets.prompts.assets import shard_names
from assets.prompts.pack_loader import load_pack
from assets.trajectories.assets import SCORE_SET

from .jobs import generate_stories, refresh_data
from .stages import is_up_to_date


@dg.schedule(
    job=refresh_data,
    cron_schedule=os.environ.get("INTERLEAVE_GROW_CRON", "0 3 * * *"),
    execution_timezone="UTC",
)
def grow_bank(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> dg.RunRequest | dg.SkipReason:
    """Every night: the next shard of prompts, and everything downstream of it.

    Next is the first shard without scores, so a preview or a failed night leaves no gap behind.
    While a run of it is not finished, there is no second one.
    """
    scored = context.instance.get_materialized_partitions(dg.AssetKey(SCORE_SET.name))
    names = shard_names(load_pack(foundry.settings.pack).name, len(scored) + 1)
    shard = next(name for name in names if name not in scored)
    context.instance.add_dynamic_partitions(str(SHARDS.name), [shard])
    if _is_running(context.instance, refresh_data.name, shard):
        return dg.SkipReason(f"the run of {shard} is not finished")
    return dg.RunRequest(partition_key=shard)


@dg.schedule(
    job=generate_stories,
    cron_schedule=os.environ.get("INTERLEAVE_ANSWER_CRON", "0 5 * * *"),
    execution_timezone="UTC",
)
def answer_requests(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> list[dg.RunRequest] | dg.SkipReason:
    """Every night: the batches that are new, have changed, or failed, and have no run yet."""
    instance = context.instance
    names = register_batches(instance, foundry)
    stale = [
        name
        for name in names
        if not is_up_to_date(GENERATION_SET, foundry, instance, name)
        and not _is_running(instance, generate_stories.name, name)
    ]
    # Several requests of one tick need a key each.
    requests = [dg.RunRequest(partition_key=name, run_key=name) for name in stale]
    return requests or dg.SkipReason(f"{len(names)} batches, none is waiting")


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
