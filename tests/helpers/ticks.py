"""Ticks of schedules and sensors as Dagster's code server evaluates them."""

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
