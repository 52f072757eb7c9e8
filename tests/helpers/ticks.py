"""Dagster's runs in this process, and ticks of schedules and sensors as of its code server."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from assets.core.foundry import FoundryResource
from assets.core.node import NODES
from dagster_project.definitions import definitions
from dagster_project.stage_runner import QUIET
from dagster_project.stages import ASSETS, CHECKS


def materialize(
    foundry: FoundryResource,
    instance: dg.DagsterInstance | None,
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


def materialize_alone(
    foundry: FoundryResource, name: str, **options: Any
) -> tuple[dict[str, Any], dict[str, bool]]:
    """Metadata of an asset in a run of its own, and which of its checks passed."""
    result = materialize(foundry, None, dg.AssetSelection.assets(name), **options)
    (event,) = result.asset_materializations_for_node(name)
    checks = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    return {key: value.value for key, value in event.metadata.items()}, checks


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


class ConditionTicks:
    """Ticks of the sensors that evaluate the conditions of assets, one after another."""

    def __init__(self, foundry: FoundryResource, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._cursor: Any = None
        self._days = 0
        self.reload(foundry)

    def reload(self, foundry: FoundryResource) -> None:
        """Go on with another profile, as after "Reload definitions"."""
        self._definitions = definitions(foundry)

    def next(self, after_days: int = 0) -> dict[str, list[str | None]]:
        """What it requests: asset -> partitions (None: it has none), each sorted."""
        self._days += after_days
        ticked = dg.evaluate_automation_conditions(
            defs=self._definitions,
            instance=self._instance,
            cursor=self._cursor,
            evaluation_time=datetime.now(UTC) + timedelta(days=self._days),
        )
        self._cursor = ticked.cursor
        requested = {name: ticked.get_requested_partitions(dg.AssetKey(name)) for name in NODES}
        return {name: sorted(found, key=str) for name, found in requested.items() if found}
