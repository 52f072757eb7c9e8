"""Sensors: aggregates follow their shards, batches become partitions, retraining on new rows."""

import dagster as dg
import orjson

from assets.checkpoints import recipes
from assets.checkpoints.recipes import Recipe
from assets.core.foundry import FoundryResource
from training.registry import CheckpointRegistry

from .jobs import retrain_critic, retrain_planner
from .schedules import register_batches

follow_upstream = dg.AutomationConditionSensorDefinition(
    "follow_upstream",
    target=dg.AssetSelection.all(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=10,
)


@dg.sensor(
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=60,
    description="Shows the batches of the profile's requests as partitions, also those that come "
    "while the file grows. It starts no runs.",
)
def register_requests(
    context: dg.SensorEvaluationContext, foundry: FoundryResource
) -> dg.SkipReason:
    names = register_batches(context.instance, foundry)
    return dg.SkipReason(f"{len(names)} batches of requests")


@dg.sensor(
    jobs=[retrain_planner, retrain_critic],
    minimum_interval_seconds=60,
    description="Starts a training when the profile's `training.retrain_after_rows` new rows have "
    "come since the newest checkpoint. Off unless it is switched on.",
)
def retrain_when_grown(
    context: dg.SensorEvaluationContext, foundry: FoundryResource
) -> list[dg.RunRequest] | dg.SkipReason:
    """A run per agent and version of its data, once the exports are up to date with the rows."""
    if foundry.settings.training is None:
        return dg.SkipReason(f"profile {foundry.settings.name} has no section training")
    planner = (recipes.planner_sft(foundry),)
    critic = (recipes.critic_sft(foundry), recipes.critic_rl(foundry))
    requests, reasons = [], []
    for job, steps in ((retrain_planner, planner), (retrain_critic, critic)):
        new = new_rows(foundry, steps)
        if new < foundry.training.retrain_after_rows:
            reasons.append(f"{job.name}: {new} new rows")
        elif any(recipe.data and recipe.data.outdated for recipe in steps):
            reasons.append(f"{job.name}: waits for `exports`")
        else:
            version = "-".join(recipe.version for recipe in steps)
            requests.append(dg.RunRequest(job_name=job.name, run_key=f"{job.name}-{version}"))
    return requests or dg.SkipReason("; ".join(reasons))


def new_rows(foundry: FoundryResource, steps: tuple[Recipe, ...]) -> int:
    """Rows there are now, less those that the newest checkpoints were trained on."""
    registry = CheckpointRegistry(foundry.home)
    newest = [row for recipe in steps for row in registry.rows(recipe.name)[-1:]]
    trained_on = sum(orjson.loads(row.metrics).get("dataset_rows", 0) for row in newest)
    return sum(recipe.data.rows for recipe in steps if recipe.data) - trained_on
