"""Jobs, and what starts runs by itself: schedules and sensors, most of them off at first."""

from collections.abc import Iterator

import dagster as dg
import orjson

from assets.checkpoints import recipes
from assets.checkpoints.recipes import Recipe
from assets.core.foundry import SHARDS, FoundryResource
from assets.generations.assets import GENERATION_SET
from assets.prompts.assets import shard_names
from assets.prompts.pack_loader import load_pack
from assets.trajectories.assets import SCORE_SET
from training.registry import CheckpointRegistry

from .stages import is_up_to_date

_EVALUATION = ("evaluation", "promotion")

refresh_data = dg.define_asset_job(
    "refresh_data",
    selection=dg.AssetSelection.groups("taxonomy", "prompts", "trajectories"),
    description="Grow the bank by the chosen shard and make its trajectories; the training sets "
    "follow by themselves once every shard and its blocking checks are there.",
)
retrain_planner = dg.define_asset_job(
    "retrain_planner",
    selection=dg.AssetSelection.assets("base_model", "planner_sft_checkpoint", *_EVALUATION),
    description="Train the planner on its present samples, evaluate it, and put it in use unless "
    "it is worse. What has been trained on the same rows is not trained again.",
)
retrain_critic = dg.define_asset_job(
    "retrain_critic",
    selection=dg.AssetSelection.assets(
        "base_model", "critic_sft_checkpoint", "critic_rl_checkpoint", *_EVALUATION
    ),
    description="Train the critic on its present samples (SFT, then GRPO), evaluate it, and put it "
    "in use unless it is worse. What has been trained on the same rows is not trained again.",
)
evaluate = dg.define_asset_job(
    "evaluate",
    selection=dg.AssetSelection.assets(*_EVALUATION),
    description="Evaluate the newest checkpoints on held-out requests and put them in use unless "
    "they are worse.",
)
generate_stories = dg.define_asset_job(
    "generate_stories",
    selection=dg.AssetSelection.assets(GENERATION_SET.name),
    description="Answer a batch of requests. What is finished is not generated again.",
)


@dg.schedule(job=refresh_data, cron_schedule="0 3 * * *", execution_timezone="UTC")
def grow_bank(context: dg.ScheduleEvaluationContext, foundry: FoundryResource) -> dg.RunRequest:
    """Every night: the next shard of prompts, and everything downstream of it.

    Next is the first shard without scores, so a preview or a failed night leaves no gap behind.
    """
    scored = context.instance.get_materialized_partitions(dg.AssetKey(SCORE_SET.name))
    names = shard_names(load_pack(foundry.settings.pack).name, len(scored) + 1)
    shard = next(name for name in names if name not in scored)
    context.instance.add_dynamic_partitions(str(SHARDS.name), [shard])
    return dg.RunRequest(partition_key=shard)


@dg.schedule(
    job=generate_stories,
    cron_schedule="0 5 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
)
def answer_requests(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Every night: the batches that are new, have changed, or failed."""
    names = register_batches(context.instance, foundry)
    stale = [
        name for name in names if not is_up_to_date(GENERATION_SET, foundry, context.instance, name)
    ]
    if not stale:
        yield dg.SkipReason(f"{len(names)} batches, all answered")
    for name in stale:
        yield dg.RunRequest(partition_key=name)


def register_batches(instance: dg.DagsterInstance, foundry: FoundryResource) -> list[str]:
    """Add the batches of the profile's requests as partitions, if it has any; their names."""
    batches = GENERATION_SET.partitions
    if batches is None or not GENERATION_SET.in_profile(foundry.settings):
        return []
    return batches.register(foundry, instance)


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
    default_status=dg.DefaultSensorStatus.STOPPED,
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
