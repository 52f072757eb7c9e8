"""Schedules and sensors of a running daemon, through the UI's GraphQL endpoint."""

import re
import time
from collections.abc import Callable
from typing import Any

from tests.helpers.browser import TIMEOUT_SECONDS, query_graphql

_WHERE = 'repositoryName: "__repository__", repositoryLocationName: "interleave"'
_TICKS = "{ ticks(limit: 50) { status skipReason error { message } runIds } }"

Ticks = dict[str, list[dict[str, Any]]]  # of every schedule and sensor, by its name


def start_sensor(url: str, name: str) -> None:
    _mutate(url, f'startSensor(sensorSelector: {{{_WHERE}, sensorName: "{name}"}})')


def start_schedule(url: str, name: str) -> None:
    _mutate(url, f'startSchedule(scheduleSelector: {{{_WHERE}, scheduleName: "{name}"}})')


def stop_schedule(url: str, name: str) -> None:
    selector = f'scheduleSelector: {{{_WHERE}, scheduleName: "{name}"}}'
    fields = "... on Schedule { scheduleState { id } }"
    state = query_graphql(url, f"{{ scheduleOrError({selector}) {{ {fields} }} }}")
    schedule_id = state["scheduleOrError"]["scheduleState"]["id"]
    _mutate(url, f'stopRunningSchedule(id: "{schedule_id}")')


def ticks(url: str) -> Ticks:
    """The last ticks, newest first."""
    sensors = f"sensorsOrError(repositorySelector: {{{_WHERE}}})"
    schedules = f"schedulesOrError(repositorySelector: {{{_WHERE}}})"
    state = query_graphql(
        url,
        f"{{ {sensors} {{ ... on Sensors {{ results {{ name sensorState {_TICKS} }} }} }} "
        f"{schedules} {{ ... on Schedules {{ results {{ name scheduleState {_TICKS} }} }} }} }}",
    )
    found = {one["name"]: one["sensorState"]["ticks"] for one in state["sensorsOrError"]["results"]}
    for one in state["schedulesOrError"]["results"]:
        found[one["name"]] = one["scheduleState"]["ticks"]
    return found


def runs(url: str) -> list[dict[str, Any]]:
    """All runs: id, status, job, partition, and the sensor that requested it."""
    fields = "runId status jobName tags { key value }"
    state = query_graphql(url, f"{{ runsOrError {{ ... on Runs {{ results {{ {fields} }} }} }} }}")
    found = state["runsOrError"]["results"]
    for run in found:
        tags = {tag["key"]: tag["value"] for tag in run.pop("tags")}
        run["partition"] = tags.get("dagster/partition")
        run["sensor"] = tags.get("dagster/sensor_name")
    return found


def worker_of(url: str, run_id: str) -> int:
    """Process id of a started run."""
    events = "... on EventConnection { events { ... on MessageEvent { message } } }"
    state = query_graphql(url, f'{{ logsForRun(runId: "{run_id}") {{ {events} }} }}')
    messages = "\n".join(event["message"] for event in state["logsForRun"]["events"])
    started = re.search(r"Started process for run \(pid: (\d+)\)", messages)
    assert started, messages
    return int(started[1])


def wait_until(
    condition: Callable[[], object], seconds: float = 2 * TIMEOUT_SECONDS, pause: float = 1
) -> None:
    """Poll until the condition is true; AssertionError when it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(pause)


def _mutate(url: str, mutation: str) -> None:
    error = "__typename ... on PythonError { message }"
    answer = query_graphql(url, f"mutation {{ it: {mutation} {{ {error} }} }}")["it"]
    failed = ("Error", "NotFound", "Unauthorized", "Invalid", "Conflict")
    assert not any(word in answer["__typename"] for word in failed), answer
