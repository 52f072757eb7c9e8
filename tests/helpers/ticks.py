"""Dagster's runs in this process, and ticks of schedules and sensors as of its code server."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from assets.core.foundry import FoundryResource
from dagster_project.definitions import definitions
from dagster_project.stage_runner import QUIET
from dagster_project.stages import ASSETS, CHECKS


def materialize(
    foundry: FoundryResource,
    instance: dg.DagsterInstance,
    selection: Sequence[str] | dg.AssetSelection,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    """A run of some assets and their checks. `options`: of `dg.materialize`."""
    return dg.materialize(
        [*ASSETS, *CHECKS],
        selection=selection,
        instance=instance,
        resources={"foundry": foundry},
        **{"run_config": QUIET, **options},
    )


def run_job(
    job: str, foundry: FoundryResource, instance: dg.DagsterInstance, **options: Any
) -> dg.ExecuteInProcessResult:
    """A run of a job. `options`: of `execute_in_process`."""
    resolved = definitions(foundry).resolve_job_def(job)
    return resolved.execute_in_process(instance=instance, run_config=QUIET, **options)


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
    job = definitions(foundry).get_repository_def().get_schedule_def(schedule).job_name
    while True:
        (request,) = schedule_tick(schedule, foundry, instance).run_requests
        options = {"partition_key": request.partition_key, "tags": request.tags}
        result = run_job(job, foundry, instance, raise_on_error=False, **options)
        assert not result.success
        yield request.tags["dagster/max_retries"]
