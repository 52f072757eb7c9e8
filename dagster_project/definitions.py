"""The code location: every asset, check, job, schedule and sensor of Interleave Foundry."""

import os

import dagster as dg

from assets.checkpoints import assets as checkpoints
from assets.checkpoints import checks as checkpoints_checks
from assets.checkpoints import promotion
from assets.core.foundry import FoundryResource
from assets.curation import assets as curation
from assets.curation import checks as curation_checks
from assets.evaluation import assets as evaluation
from assets.evaluation import checks as evaluation_checks
from assets.generations import assets as generations
from assets.generations import checks as generations_checks
from assets.prompts import assets as prompts
from assets.prompts import checks as prompts_checks
from assets.trajectories import assets as trajectories
from assets.trajectories import checks as trajectories_checks

from . import jobs, schedules, sensors

ASSETS = [
    asset
    for module in (prompts, trajectories, curation, checkpoints, evaluation, promotion, generations)
    for asset in vars(module).values()
    if isinstance(asset, dg.AssetsDefinition)
]
CHECKS = dg.load_asset_checks_from_modules(
    [
        prompts_checks,
        trajectories_checks,
        curation_checks,
        checkpoints_checks,
        evaluation_checks,
        generations_checks,
    ]
)


FOUNDRY = FoundryResource(
    profile=os.environ.get("INTERLEAVE_PROFILE", "sketch"),
    root=os.environ.get("INTERLEAVE_HOME", ".interleave"),
)
defs = dg.Definitions(
    assets=ASSETS,
    asset_checks=CHECKS,
    jobs=[
        jobs.refresh_data,
        jobs.retrain_planner,
        jobs.retrain_critic,
        jobs.evaluate,
        jobs.generate_stories,
    ],
    schedules=[schedules.grow_bank, schedules.answer_requests],
    sensors=[sensors.follow_upstream, sensors.retrain_when_grown, sensors.register_requests],
    resources={"foundry": FOUNDRY},
    # Runs are parallel, one a shard; a process per step would take longer than most steps.
    executor=dg.in_process_executor,
)
