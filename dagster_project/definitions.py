"""The code location: every asset and check below `assets`, and every job, schedule and sensor."""

import os
from typing import cast

import dagster as dg

import assets
from assets.core.foundry import FoundryResource

from . import schedules, sensors
from .jobs import evaluate, generate_stories, refresh_data, retrain_critic, retrain_planner

ASSETS = cast("list[dg.AssetsDefinition]", dg.load_assets_from_package_module(assets))
CHECKS = dg.load_asset_checks_from_package_module(assets)
FOUNDRY = FoundryResource(
    profile=os.environ.get("INTERLEAVE_PROFILE", "sketch"),
    root=os.environ.get("INTERLEAVE_HOME", ".interleave"),
)
defs = dg.Definitions(
    assets=ASSETS,
    asset_checks=CHECKS,
    jobs=[refresh_data, retrain_planner, retrain_critic, evaluate, generate_stories],
    schedules=[schedules.grow_bank, schedules.answer_requests],
    sensors=[sensors.follow_upstream, sensors.retrain_when_grown, sensors.register_requests],
    resources={"foundry": FOUNDRY},
    # Runs are parallel, one a shard; a process per step would take longer than most steps.
    executor=dg.in_process_executor,
)
