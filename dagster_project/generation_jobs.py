"""The job that answers requests, its schedule, and the sensor that finds new batches of them."""

from collections.abc import Iterator

import dagster as dg

from assets.core.foundry import FoundryResource
from assets.generations.assets import GENERATION_SET

from .staleness import is_up_to_date

generate_stories = dg.define_asset_job(
    "generate_stories",
    selection=dg.AssetSelection.assets(GENERATION_SET.name),
    description="Tell the stories of a batch of requests. What is finished is not told again.",
)


@dg.schedule(
    job=generate_stories,
    cron_schedule="0 5 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
)
def answer_requests(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Every night: the batches that are new, have changed, or failed. Off until switched on."""
    names = _register(context.instance, foundry)
    stale = [
        name for name in names if not is_up_to_date(GENERATION_SET, foundry, context.instance, name)
    ]
    if not stale:
        yield dg.SkipReason(f"{len(names)} batches, all answered")
    for name in stale:
        yield dg.RunRequest(partition_key=name)


@dg.sensor(
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=60,
    description="Shows the batches of the profile's requests as partitions, also those that come "
    "while the file grows. It starts no runs.",
)
def register_requests(
    context: dg.SensorEvaluationContext, foundry: FoundryResource
) -> dg.SkipReason:
    """Partitions only; none where the profile has no requests."""
    names = _register(context.instance, foundry)
    return dg.SkipReason(f"{len(names)} batches of requests")


def _register(instance: dg.DagsterInstance, foundry: FoundryResource) -> list[str]:
    batches = GENERATION_SET.partitions
    if batches is None or not GENERATION_SET.in_profile(foundry.settings):
        return []
    return batches.register(foundry, instance)
