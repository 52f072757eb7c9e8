"""The code location: every asset and check below `assets`, and every job, schedule and sensor."""

import os

import dagster as dg

from assets.core.foundry import FoundryResource

from . import schedules, sensors
from .asset_definitions import ASSETS, CHECKS
from .jobs import (
    evaluate,
    improve_agents,
    make_generations,
    refresh_data,
    retrain_critic,
    retrain_planner,
)

FOUNDRY = FoundryResource(
    profile=os.environ.get("INTERLEAVE_PROFILE", "sketch"),
    root=os.environ.get("INTERLEAVE_HOME", ".interleave"),
)


def definitions(foundry: FoundryResource) -> dg.Definitions:
    """The code location of a lake and profile."""
    return dg.Definitions(
        assets=ASSETS,
        asset_checks=CHECKS,
        jobs=[
            refresh_data,
            retrain_planner,
            retrain_critic,
            evaluate,
            make_generations,
            improve_agents,
        ],
        schedules=[schedules.grow_bank, schedules.answer_requests, schedules.improve_weekly],
        sensors=[
            sensors.follow_upstream,
            sensors.retrain_when_grown,
            sensors.register_requests,
            sensors.follow_reviews,
            sensors.notify_failures,
            sensors.notify_budget,
        ],
        resources={"foundry": foundry},
        # Runs are parallel, one a shard; a process per step would take longer than most steps.
        executor=dg.in_process_executor,
    )


defs = definitions(FOUNDRY)
