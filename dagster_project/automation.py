"""Jobs, schedules and sensors.

What the daemon materializes by itself follows from `conditions`. What makes more than aggregates is
off until it is switched on, and runs at night, `improve_weekly` once a week, or when a cron
expression in the environment says ($INTERLEAVE_GROW_CRON, ..._RETRAIN_CRON, ..._ANSWER_CRON,
..._IMPROVE_CRON; UTC).
"""

import os
import warnings

import dagster as dg

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.node import NODES
from assets.curation.targets import read_growth, targets_of
from assets.generations.assets import GENERATION_SET
from assets.prompts.assets import PROMPT_BANK, PromptsConfig, trajectory_shards
from assets.prompts.rounds import recorded_rounds
from assets.reviews.assets import REVIEW_SET
from assets.trajectories.assets import SCORE_SET
from inference.backends.providers.budget import SpendingFile
from schemas import FoundryError
from schemas.training import BASE_MODEL, CRITIC, PLANNER, RL_PLANNER, SFT_CRITIC
from schemas.trajectories import REVIEWS, SCORES

from .conditions import GROW_CRON, MAKE_SHARDS, TRAINED
from .improve import finished_rounds, improve
from .instance import PROMOTES_TAG
from .notifications import failure_of, notify, notify_alerts
from .staleness import is_up_to_date, report_changes

warnings.filterwarnings("ignore", ".*use_user_code_server", dg.BetaWarning)
_EVALUATION = ("rubrics", "evaluation", "promotion")
_ONE_AT_A_TIME = {PROMOTES_TAG: "true"}

refresh_data = dg.define_asset_job(
    "refresh_data",
    selection=dg.AssetSelection.groups("prompts", "trajectories"),
    description="Grow the bank by the chosen shard and make its trajectories; the training sets "
    "follow by themselves once every shard and its blocking checks are there.",
)
retrain_planner = dg.define_asset_job(
    "retrain_planner",
    selection=dg.AssetSelection.assets(BASE_MODEL, PLANNER, RL_PLANNER, *_EVALUATION),
    tags=_ONE_AT_A_TIME,
    description="Train the planner on its present samples (SFT, then GRPO where the profile has "
    "it), evaluate it, and put it in use unless it is worse. What has been trained on the same "
    "rows is not trained again.",
)
retrain_critic = dg.define_asset_job(
    "retrain_critic",
    selection=dg.AssetSelection.assets(BASE_MODEL, SFT_CRITIC, CRITIC, *_EVALUATION),
    tags=_ONE_AT_A_TIME,
    description="Train the critic on its present samples (SFT, then GRPO), evaluate it, and put it "
    "in use unless it is worse. What has been trained on the same rows is not trained again.",
)
evaluate = dg.define_asset_job(
    "evaluate",
    selection=dg.AssetSelection.assets(*_EVALUATION),
    tags=_ONE_AT_A_TIME,
    description="Evaluate the newest checkpoints on held-out requests and put them in use unless "
    "they are worse.",
)
make_generations = dg.define_asset_job(
    "make_generations",
    selection=dg.AssetSelection.assets(GENERATION_SET.name),
    description="Answer a batch of requests. What is finished is not generated again.",
)


@dg.op(description="One round of `interleave improve`: the next one, or the one that is open.")
def next_round(context: dg.OpExecutionContext, foundry: FoundryResource) -> None:
    rounds = len(finished_rounds(foundry)) + 1
    improve(foundry, context.instance, rounds, lambda line: context.log.info(str(line)))


@dg.job(
    tags=_ONE_AT_A_TIME,
    description="A round: new prompts, trajectories by the promoted agents, training on them, "
    "evaluation, promotion. Does nothing when the last round did not help.",
)
def improve_agents() -> None:
    next_round()


@dg.schedule(
    target=dg.AssetSelection.groups("prompts"), cron_schedule=GROW_CRON, execution_timezone="UTC"
)
def grow_bank(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> dg.RunRequest | dg.SkipReason:
    """Every night: one more shard of prompts, of which `make_shards` makes what follows.

    While a shard has no scores the bank does not grow, so that a preview or a failed night leaves
    no gap behind. Where the profile has `targets`, it grows until they are met, or bank or budget
    are not enough for them.
    """
    if reason := _stopped_growing(foundry, context.instance):
        return dg.SkipReason(reason)
    shards = context.instance.get_dynamic_partitions(str(SHARDS.name))
    scored = context.instance.get_materialized_partitions(dg.AssetKey(SCORE_SET.name))
    if missing := sorted(set(shards) - scored):
        return dg.SkipReason(
            f"{missing[0]} has no scores: `make_shards` makes them, where it is switched on"
        )
    more = trajectory_shards(foundry, context.instance) + bool(shards)
    config = dg.RunConfig({PROMPT_BANK.name: PromptsConfig(shards=more)})
    return dg.RunRequest(run_config=config)


def _stopped_growing(foundry: FoundryResource, instance: dg.DagsterInstance) -> str | None:
    """Why targets ask for no more shards now; None: they do, or there are none."""
    names = list(targets_of(foundry))
    if not names or not foundry.home.lake.partitions(SCORES):
        return None
    if behind := [n for n in names if not is_up_to_date(NODES[n], foundry, instance)]:
        return f"{', '.join(behind)}: not up to date with the bank, so what is missing is not known"
    growth = read_growth(foundry, names)
    if growth.is_met:
        return f"targets are met: {growth.text}"
    return growth.problem(foundry.shards)


@dg.schedule(
    job=improve_agents,
    cron_schedule=os.environ.get("INTERLEAVE_IMPROVE_CRON", "0 1 * * 0"),
    execution_timezone="UTC",
)
def improve_weekly(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> dg.RunRequest | dg.SkipReason:
    """Every week: the next round, or the one that was interrupted."""
    if foundry.settings.rounds is None:
        return dg.SkipReason(f"profile {foundry.settings.name} has no section rounds")
    runs = context.instance.get_runs(dg.RunsFilter(job_name=improve_agents.name))
    if running := [run.run_id for run in runs if not run.is_finished]:
        return dg.SkipReason(f"run {running[0]} is not finished")
    finished = finished_rounds(foundry)
    unfinished = len(recorded_rounds(foundry.home)) > len(finished)
    if finished and not finished[-1].continues and not unfinished:
        last = finished[-1]
        return dg.SkipReason(f"round {last.round} did not help: {last.why}")
    return dg.RunRequest()


def register_batches(instance: dg.DagsterInstance, foundry: FoundryResource) -> list[str]:
    """Add the batches of the profile's requests as partitions, if it has any; their names."""
    batches = GENERATION_SET.partitions
    if batches is None or not GENERATION_SET.in_profile(foundry.settings):
        return []
    return batches.register(foundry, instance)


_SHARDED = dg.AssetSelection.assets(*(node.name for node in NODES.values() if node.sharded))
_BATCHES = dg.AssetSelection.assets(GENERATION_SET.name)
_TRAINED = dg.AssetSelection.assets(*TRAINED)
follow_upstream = dg.AutomationConditionSensorDefinition(
    "follow_upstream",
    target=dg.AssetSelection.all() - _SHARDED - _BATCHES - _TRAINED,
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=10,
    description="Materializes the training sets and other aggregates once every shard is there.",
)
make_shards = dg.AutomationConditionSensorDefinition(
    MAKE_SHARDS,
    target=_SHARDED,
    minimum_interval_seconds=30,
    use_user_code_server=True,  # the conditions are ours
    emit_backfills=False,  # a run a shard: one that fails fails alone
    description="Makes every shard of the bank that is missing, a few at once and within the "
    "budget. Off unless it is switched on.",
)
answer_requests = dg.AutomationConditionSensorDefinition(
    "answer_requests",
    target=_BATCHES,
    minimum_interval_seconds=60,
    use_user_code_server=True,
    emit_backfills=False,
    description="Every night ($INTERLEAVE_ANSWER_CRON): answers the batches of requests that are "
    "new, have changed, or failed. Off unless it is switched on.",
)
retrain_when_grown = dg.AutomationConditionSensorDefinition(
    "retrain_when_grown",
    target=_TRAINED,
    minimum_interval_seconds=60,
    use_user_code_server=True,
    run_tags=_ONE_AT_A_TIME,
    description="Trains, evaluates and promotes agents when `training.retrain_after_rows` rows of "
    "the profile have come or changed since the newest checkpoint, at most once a night "
    "($INTERLEAVE_RETRAIN_CRON). Off unless it is switched on.",
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
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=300,
    description="Marks as unsynced what was lost or changed in the lake since it was materialized, "
    "and what was made from it. It starts no runs: `interleave run` makes it again.",
)
def watch_lake(context: dg.SensorEvaluationContext, foundry: FoundryResource) -> dg.SkipReason:
    changed = report_changes(foundry, context.instance)
    return dg.SkipReason(f"changed: {', '.join(changed)}" if changed else "as materialized")


@dg.sensor(
    asset_selection=dg.AssetSelection.assets(REVIEW_SET.name),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=60,
    description="Materializes `reviews` a minute after the last review, where the profile has "
    "`curation.reviews`. The training sets follow it.",
)
def follow_reviews(
    context: dg.SensorEvaluationContext, foundry: FoundryResource
) -> dg.RunRequest | dg.SkipReason:
    """A run for reviews that are new since the last one, and the same as a tick ago."""
    if not REVIEW_SET.in_profile(foundry.settings):
        return dg.SkipReason(f"profile {foundry.settings.name} has no section curation.reviews")
    if is_up_to_date(REVIEW_SET, foundry, context.instance) or not foundry.home.lake.partitions(
        REVIEWS
    ):
        return dg.SkipReason("no new reviews")
    version = REVIEW_SET.data_version(foundry, None)
    if version != context.cursor:
        context.update_cursor(version)
        return dg.SkipReason("new reviews; waiting until no more come")
    fingerprint = REVIEW_SET.fingerprint(foundry, context.instance, None)
    return dg.RunRequest(run_key=f"{REVIEW_SET.name}-{fingerprint}-{version}")


@dg.run_failure_sensor(
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=10,
    monitor_all_code_locations=True,  # those of `interleave run` belong to none
    description="Tells of failed runs by webhook or mail, as section `notifications` of the "
    "profile says.",
)
def notify_failures(context: dg.RunFailureSensorContext, foundry: FoundryResource) -> dg.SkipReason:
    """One failed run a tick, so that it stays within the time that Dagster gives it."""
    settings = foundry.settings.notifications
    if settings is None:
        return dg.SkipReason(f"profile {foundry.settings.name} has no section notifications")
    steps, why = context.get_step_failure_events(), context.failure_event.message or ""
    failure = failure_of(context.dagster_run, steps, why, settings.ui)
    try:
        notify(settings, failure)
    except FoundryError as error:
        context.log.error(str(error))
        return dg.SkipReason(str(error))
    return dg.SkipReason(f"notified: {failure.line}")


@dg.sensor(
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=30,
    description="Tells of shares of the budget that are spent (`budget.alerts`), once each, by "
    "webhook or mail, as section `notifications` of the profile says.",
)
def notify_budget(context: dg.SensorEvaluationContext, foundry: FoundryResource) -> dg.SkipReason:
    settings = foundry.settings.notifications
    if settings is None:
        return dg.SkipReason(f"profile {foundry.settings.name} has no section notifications")
    try:
        lines = notify_alerts(settings, SpendingFile.of(foundry.home))
    except FoundryError as error:
        context.log.error(str(error))
        return dg.SkipReason(str(error))
    return dg.SkipReason(f"notified: {'; '.join(lines)}" if lines else "no new alerts")
