"""Ticks of schedules and sensors as Dagster's code server evaluates them."""

from collections.abc import Iterator

import dagster as dg

from assets.core.foundry import FoundryResource
from dagster_project.definitions import definitions


def schedule_tick(name: str, foundry: FoundryResource, instance: dg.DagsterInstance):
    """What a schedule requests now: `run_requests`, or a `skip_message`."""
    repository = definitions(foundry).get_repository_def()
    with dg.build_schedule_context(
        instance=instance, resources={"foundry": foundry}, repository_def=repository
    ) as context:
        return repository.get_schedule_def(name).evaluate_tick(context)


def sensor_tick(
    name: str, foundry: FoundryResource, instance: dg.DagsterInstance, cursor: str | None = None
):
    """What a sensor requests now: `run_requests`, or a `skip_message`, and a `cursor`."""
    repository = definitions(foundry).get_repository_def()
    with dg.build_sensor_context(
        instance=instance,
        cursor=cursor,
        sensor_name=name,
        resources={"foundry": foundry},
        repository_def=repository,
    ) as context:
        return repository.get_sensor_def(name).evaluate_tick(context)


def run_requests(
    schedule: str, foundry: FoundryResource, instance: dg.DagsterInstance
) -> Iterator[str]:
    """Run the only request of each tick, which fails; how often the daemon may repeat that run."""
    repository = definitions(foundry).get_repository_def()
    job = repository.get_job(repository.get_schedule_def(schedule).job_name)
    while True:
        (request,) = schedule_tick(schedule, foundry, instance).run_requests
        result = job.execute_in_process(
            instance=instance,
            partition_key=request.partition_key,
            tags=request.tags,
            raise_on_error=False,
        )
        assert not result.success
        yield request.tags["dagster/max_retries"]
