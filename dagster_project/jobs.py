"""Jobs, the schedule that grows the bank, and the sensor that lets aggregates follow."""

import dagster as dg

from assets.core.foundry import SHARDS, FoundryResource
from assets.prompts.assets import shard_names
from assets.prompts.pack import load_pack
from assets.trajectories.assets import SCORE_SET

refresh_data = dg.define_asset_job(
    "refresh_data",
    selection=dg.AssetSelection.groups("taxonomy", "prompts", "trajectories"),
    description="Grow the bank by the chosen shard and tell its stories; the training sets follow "
    "by themselves once every shard and its blocking checks are there.",
)


@dg.schedule(job=refresh_data, cron_schedule="0 3 * * *", execution_timezone="UTC")
def grow_bank(context: dg.ScheduleEvaluationContext, foundry: FoundryResource) -> dg.RunRequest:
    """Every night: the next shard of prompts, and everything downstream of it.

    Next is the first shard without scores, so a preview or a failed night leaves no gap behind.
    """
    told = context.instance.get_materialized_partitions(dg.AssetKey(SCORE_SET.name))
    names = shard_names(load_pack(foundry.settings.pack).name, len(told) + 1)
    shard = next(name for name in names if name not in told)
    context.instance.add_dynamic_partitions(str(SHARDS.name), [shard])
    return dg.RunRequest(partition_key=shard)


follow_upstream = dg.AutomationConditionSensorDefinition(
    "follow_upstream",
    target=dg.AssetSelection.all(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=10,
)
