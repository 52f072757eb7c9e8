"""The code location: every asset, check, job, schedule and sensor of Interleave Foundry."""

import os

import dagster as dg

from assets.checkpoints import assets as checkpoints
from assets.checkpoints import checks as checkpoints_checks
from assets.checkpoints import promotion_assets as promotion
from assets.core.foundry import FoundryResource
from assets.curation import assets as curation
from assets.curation import checks as curation_checks
from assets.evaluation import ablation
from assets.evaluation import assets as evaluation
from assets.evaluation import checks as evaluation_checks
from assets.generations import assets as generations
from assets.generations import checks as generations_checks
from assets.prompts import assets as prompts
from assets.prompts import checks as prompts_checks
from assets.trajectories import assets as trajectories
from assets.trajectories import checks as trajectories_checks

from . import generation_jobs, jobs, retraining

ASSETS = [
    asset
    for module in (
        prompts,
        trajectories,
        curation,
        checkpoints,
        evaluation,
        ablation,
        promotion,
        generations,
    )
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


def foundry_from_environment() -> FoundryResource:
    """Profile and lake as `INTERLEAVE_PROFILE` and `INTERLEAVE_HOME` say."""
    return FoundryResource(
        profile=os.environ.get("INTERLEAVE_PROFILE", "sketch"),
        root=os.environ.get("INTERLEAVE_HOME", ".interleave"),
    )


defs = dg.Definitions(
    assets=ASSETS,
    asset_checks=CHECKS,
    jobs=[
        jobs.refresh_data,
        retraining.retrain_planner,
        retraining.retrain_critic,
        retraining.evaluate,
        generation_jobs.generate_stories,
    ],
    schedules=[jobs.grow_bank, generation_jobs.answer_requests],
    sensors=[
        jobs.follow_upstream,
        retraining.retrain_when_grown,
        generation_jobs.register_requests,
    ],
    resources={"foundry": foundry_from_environment()},
    # Runs work in parallel, one a shard; a process for every step would cost more than most steps.
    executor=dg.in_process_executor,
)
