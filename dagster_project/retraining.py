"""Jobs that train and evaluate again, and the sensor that starts them when the data has grown."""

from collections.abc import Iterator

import dagster as dg
import orjson

from assets.checkpoints import recipes
from assets.checkpoints.recipes import Recipe
from assets.core.foundry import FoundryResource
from training.registry import CheckpointRegistry

_JUDGED = ("evaluation", "promotion")
_PLANNER = ("base_model", "planner_sft_checkpoint")
_CRITIC = ("base_model", "critic_sft_checkpoint", "critic_rl_checkpoint")

retrain_planner = dg.define_asset_job(
    "retrain_planner",
    selection=dg.AssetSelection.assets(*_PLANNER, *_JUDGED),
    description="Train the planner on its present samples, evaluate it, and put it in use unless "
    "it is worse. What has been trained on the same rows is not trained again.",
)
retrain_critic = dg.define_asset_job(
    "retrain_critic",
    selection=dg.AssetSelection.assets(*_CRITIC, *_JUDGED),
    description="Teach and reinforce the critic on its present samples, evaluate it, and put it in "
    "use unless it is worse. What has been trained on the same rows is not trained again.",
)
evaluate = dg.define_asset_job(
    "evaluate",
    selection=dg.AssetSelection.assets(*_JUDGED),
    description="Evaluate the newest checkpoints on held-out requests and put them in use unless "
    "they are worse.",
)


@dg.sensor(
    jobs=[retrain_planner, retrain_critic],
    default_status=dg.DefaultSensorStatus.STOPPED,
    minimum_interval_seconds=60,
    description="Starts a training when the profile's `training.retrain_after_rows` new rows have "
    "come since the newest checkpoint. Off unless it is switched on.",
)
def retrain_when_grown(
    context: dg.SensorEvaluationContext, foundry: FoundryResource
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """A run per agent and version of its data; exports that lag behind are waited for."""
    if foundry.settings.training is None:
        yield dg.SkipReason(f"profile {foundry.settings.name} does not train")
        return
    planner = (recipes.planner_sft(foundry),)
    critic = (recipes.critic_sft(foundry), recipes.critic_rl(foundry))
    for job, taught in ((retrain_planner, planner), (retrain_critic, critic)):
        new, waiting = new_rows(foundry, taught), any(r.data and r.data.behind for r in taught)
        if new < foundry.training.retrain_after_rows:
            yield dg.SkipReason(f"{job.name}: {new} new rows")
        elif waiting:
            yield dg.SkipReason(f"{job.name}: waits for `exports`")
        else:
            version = "-".join(recipe.version for recipe in taught)
            yield dg.RunRequest(job_name=job.name, run_key=f"{job.name}-{version}")


def new_rows(foundry: FoundryResource, taught: tuple[Recipe, ...]) -> int:
    """Rows there are now, less those that the newest checkpoints were trained on."""
    return sum(_rows_now(recipe) - _rows_seen(foundry, recipe.name) for recipe in taught)


def _rows_now(recipe: Recipe) -> int:
    return recipe.data.rows if recipe.data else 0


def _rows_seen(foundry: FoundryResource, name: str) -> int:
    newest = CheckpointRegistry(foundry.home).rows(name)[-1:]
    return sum(orjson.loads(row.metrics).get("dataset_rows", 0) for row in newest)
