"""The code location: every asset and check below `assets`, and every job, schedule and sensor."""

import os
from contextlib import suppress

import dagster as dg

from assets.core.additions import DEFS, additions
from assets.core.foundry import FoundryResource
from assets.core.node import NODES
from schemas import FoundryError

from . import automation
from .conditions import condition_of
from .sources import observed_sources
from .stages import CHECKS, versioned_assets

FOUNDRY = FoundryResource(
    profile=os.environ.get("INTERLEAVE_PROFILE", "sketch"),
    root=os.environ.get("INTERLEAVE_HOME", ".interleave"),
)


def _with_conditions(foundry: FoundryResource) -> list[dg.AssetsDefinition]:
    """The assets, each with the condition under which the daemon materializes it."""

    def with_condition(spec: dg.AssetSpec) -> dg.AssetSpec:
        # A profile that cannot be read is the business of the run that needs it.
        with suppress(FoundryError):
            condition = condition_of(NODES[spec.key.to_user_string()], foundry)
            return spec.replace_attributes(automation_condition=condition)
        return spec

    return [each.map_asset_specs(with_condition) for each in versioned_assets(foundry)]


def definitions(foundry: FoundryResource) -> dg.Definitions:
    """The code location of a lake and profile, with what is in `dagster_project/defs`."""
    own = dg.Definitions(
        assets=_with_conditions(foundry),
        asset_checks=CHECKS,
        jobs=[
            automation.refresh_data,
            automation.retrain_planner,
            automation.retrain_critic,
            automation.evaluate,
            automation.make_generations,
            automation.improve_agents,
        ],
        schedules=[automation.grow_bank, automation.improve_weekly],
        sensors=[
            automation.follow_upstream,
            automation.make_shards,
            automation.answer_requests,
            automation.retrain_when_grown,
            automation.register_requests,
            automation.watch_lake,
            automation.follow_reviews,
            automation.notify_failures,
            automation.notify_budget,
        ],
        resources={"foundry": foundry},
        # Runs are parallel, one a shard; a process per step would take longer than most steps.
        executor=dg.in_process_executor,
    )
    own = dg.Definitions.merge(own, observed_sources(foundry))
    if all(path.name.startswith("__") for path in DEFS.iterdir()):
        return own  # to look for components takes a tenth of the time of loading
    if additions():
        _ = foundry.unsized  # what a component contradicts is an error
    return dg.Definitions.merge(own, dg.load_from_defs_folder(path_within_project=DEFS))


defs = definitions(FOUNDRY)
