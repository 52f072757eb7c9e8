"""Jobs, schedules and sensors.

Schedules are off until they are switched on. They run every night, `improve_weekly` every week, or
when a cron expression in the environment says ($INTERLEAVE_GROW_CRON, $INTERLEAVE_ANSWER_CRON,
$INTERLEAVE_IMPROVE_CRON; UTC). A partition whose run failed is requested again, at most twice with
the same profile and requests, runs that the daemon repeats because their process died included.
"""

import os

import dagster as dg

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.node import NODES
from assets.curation.targets import read_growth, targets_of
from assets.generations.assets import GENERATION_SET
from assets.prompts.assets import shard_names
from assets.prompts.pack_loader import load_pack
from assets.prompts.rounds import recorded_rounds
from assets.reviews.assets import REVIEW_SET
from assets.trajectories.assets import SCORE_SET
from inference.backends.providers.budget import SpendingFile
from inference.calls.hashing import content_digest
from schemas import FoundryError
from schemas.training import BASE_MODEL, CRITIC, PLANNER, RL_PLANNER, SFT_CRITIC
from schemas.trajectories import REVIEWS, SCORES

from .improve import finished_rounds, improve
from .instance import PROMOTES_TAG
from .notifications import failure_of, notify, notify_alerts
from .retraining import MOST_RUNS, RECIPE_TAG, agents, decide, record_rows
from .stages import is_up_to_date, up_to_date_partitions

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


INPUTS_TAG = "interleave/inputs"  # hash of what a scheduled run follows from


@dg.schedule(
    job=refresh_data,
    cron_schedule=os.environ.get("INTERLEAVE_GROW_CRON", "0 3 * * *"),
    execution_timezone="UTC",
)
def grow_bank(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> dg.RunRequest | dg.SkipReason:
    """Every night: the next shard of prompts, and everything downstream of it.

    Next is the first shard without scores, so a preview or a failed night leaves no gap behind: one
    that failed too often has to be run by hand before the bank grows again. While a run of it is
    not finished, there is no second one. Where the profile has `targets`, the bank grows until they
    are met, or bank or budget are not enough for them.
    """
    if reason := _stopped_growing(foundry, context.instance):
        return dg.SkipReason(reason)
    scored = context.instance.get_materialized_partitions(dg.AssetKey(SCORE_SET.name))
    names = shard_names(load_pack(foundry.settings.pack).name, len(scored) + 1)
    shard = next(name for name in names if name not in scored)
    context.instance.add_dynamic_partitions(str(SHARDS.name), [shard])
    found = _request(context.instance, foundry, refresh_data.name, shard)
    return found if isinstance(found, dg.RunRequest) else dg.SkipReason(found)


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
    job=make_generations,
    cron_schedule=os.environ.get("INTERLEAVE_ANSWER_CRON", "0 5 * * *"),
    execution_timezone="UTC",
)
def answer_requests(
    context: dg.ScheduleEvaluationContext, foundry: FoundryResource
) -> list[dg.RunRequest] | dg.SkipReason:
    """Every night: the batches that are new, have changed, or failed less than three times."""
    instance = context.instance
    names = register_batches(instance, foundry)
    current = up_to_date_partitions(GENERATION_SET, foundry, instance, names)
    stale = [name for name in names if name not in current]
    found = [_request(instance, foundry, make_generations.name, name) for name in stale]
    waiting = [each for each in found if isinstance(each, str)]
    requests = [each for each in found if isinstance(each, dg.RunRequest)]
    reason = "; ".join(waiting) or "all answered"
    return requests or dg.SkipReason(f"{len(names)} batches, {reason}")


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
    return dg.RunRequest(tags={"dagster/max_retries": str(MOST_RUNS - 1)})


def _request(
    instance: dg.DagsterInstance, foundry: FoundryResource, job: str, partition: str
) -> dg.RunRequest | str:
    """The request for a partition's run; why there is none, where one runs or too many failed."""
    if _is_running(instance, job, partition):
        return f"the run of {partition} is not finished"
    batches = GENERATION_SET.partitions if job == make_generations.name else None
    origin = batches.origin(foundry, partition) if batches else None
    tags = {INPUTS_TAG: content_digest([foundry.settings, origin])[:12]}
    status = dg.DagsterRunStatus.FAILURE
    failed = instance.get_runs(
        dg.RunsFilter(
            job_name=job, statuses=[status], tags={"dagster/partition": partition, **tags}
        )
    )
    if len(failed) >= MOST_RUNS:
        name = failed[0].run_id
        return f"{partition}: {len(failed)} runs failed, last {name}: see why, and run it by hand"
    tags["dagster/max_retries"] = str(MOST_RUNS - 1 - len(failed))
    # Several requests of one tick need a key each.
    return dg.RunRequest(partition_key=partition, run_key=partition, tags=tags)


def _is_running(instance: dg.DagsterInstance, job: str, partition: str) -> bool:
    """Whether a run of a job on this partition is queued or not finished."""
    runs = instance.get_runs(dg.RunsFilter(job_name=job, tags={"dagster/partition": partition}))
    return any(not run.is_finished for run in runs)


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


@dg.sensor(
    jobs=[retrain_planner, retrain_critic],
    minimum_interval_seconds=60,
    description="Starts a training when `training.retrain_after_rows` rows of the profile have "
    "come or changed since the newest checkpoint, and a failed one again: at most three times on "
    "the same rows, after 10 and 20 minutes. Off unless it is switched on.",
)
def retrain_when_grown(
    context: dg.SensorEvaluationContext, foundry: FoundryResource
) -> list[dg.RunRequest] | dg.SkipReason:
    """A run per agent and version of its data, once the exports are up to date with the rows."""
    if foundry.settings.training is None:
        return dg.SkipReason(f"profile {foundry.settings.name} has no section training")
    record_rows(foundry)
    decisions = {
        job: decide(foundry, context.instance, job, steps) for job, steps in agents(foundry).items()
    }
    reason = "; ".join(f"{job}: {decision.why}" for job, decision in decisions.items())
    context.log.info(reason)
    return [
        dg.RunRequest(
            job_name=job,
            # Dagster starts no run again whose key it has seen, failed or not.
            run_key=f"{job}-{decision.version}-{decision.number}",
            tags={RECIPE_TAG: decision.version},
        )
        for job, decision in decisions.items()
        if decision.requested
    ] or dg.SkipReason(reason)


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
