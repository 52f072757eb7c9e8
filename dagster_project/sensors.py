"""Sensors: aggregates follow their shards and reviews, batches become partitions, retraining,
notifications."""

import dagster as dg

from assets.core.foundry import FoundryResource
from assets.reviews.assets import REVIEW_SET
from inference.backends.providers.budget import SpendingFile
from schemas import FoundryError
from schemas.reviews import REVIEWS

from .jobs import retrain_critic, retrain_planner
from .notifications import failure_of, notify, notify_alerts
from .retraining import RECIPE_TAG, agents, decide, record_rows
from .schedules import register_batches
from .stages import is_up_to_date

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
