"""The whole lineage through a real Dagster instance, on a shard of a few prompts."""

from pathlib import Path

import dagster as dg
import pytest

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.node import NODES
from dagster_project import jobs
from dagster_project.definitions import ASSETS, CHECKS, defs
from dagster_project.instance import open_instance
from dagster_project.run import QUIET, run_lineage
from dagster_project.stages import select_nodes
from interleave_foundry import query
from schemas import FoundryError
from schemas.prompts import TEMPLATES
from schemas.trajectories import ATTEMPTS, PLANS, SCORES
from warehouse import refresh_views

pytestmark = pytest.mark.slow


def test_a_run_makes_everything_and_a_second_one_nothing(foundry, instance):
    first = run_lineage(foundry, instance, shards=1)
    assert len(first.materialized) == len(select_nodes([], foundry.settings)) and not first.reused

    refresh_views(foundry.home)
    counts = query(
        "select (select count(*) from attempts) as attempts, (select count(*) from scores) as "
        "scores, (select count(*) from critic_sft) as sft, (select count(*) from planner_sft) as "
        "plans",
        foundry.home,
    ).iloc[0]
    assert counts.attempts > 25 and counts.scores == counts.attempts
    assert counts.sft > 0 and counts.plans > 0

    second = run_lineage(foundry, instance, shards=1)
    assert not second.materialized and len(second.reused) == len(first.materialized)


def test_growing_the_bank_tells_only_the_new_shard(foundry, instance):
    run_lineage(foundry, instance, shards=1)
    grown = run_lineage(foundry, instance, shards=2)
    told = [name for name in grown.materialized if name.startswith("trajectories")]
    assert told == ["trajectories[sketchbook-0001]"]
    assert "trajectories[sketchbook-0000]" in grown.reused
    assert {"steps", "critic_sft"} <= set(grown.materialized)


def test_a_failed_blocking_check_stops_the_run_and_is_not_taken_for_done(foundry, instance):
    run_lineage(foundry, instance, shards=1, select=["taxonomy", "vocabulary", "templates"])
    foundry.home.lake.write(TEMPLATES, [], "all")
    for _first_and_second in range(2):
        with pytest.raises(FoundryError, match="prompts: references_hold"):
            run_lineage(foundry, instance, shards=1, select=["prompts", "plans"])
    assert not foundry.home.lake.partitions(PLANS)


def test_a_missing_picture_fails_its_check(foundry, instance):
    bank = ["taxonomy", "vocabulary", "templates", "prompts"]
    run_lineage(foundry, instance, shards=1, select=[*bank, "plans", "trajectories"])
    picture = foundry.home.lake.read(ATTEMPTS)["image"][0].as_py()
    Path(foundry.home.images.url(picture)).unlink()
    result = dg.materialize(
        [*ASSETS, *CHECKS],
        selection=dg.AssetSelection.checks_for_assets("trajectories"),
        tags={"dagster/partition": "sketchbook-0000"},
        instance=instance,
        resources={"foundry": foundry},
        run_config=QUIET,
        raise_on_error=False,
    )
    failed = {e.check_name for e in result.get_asset_check_evaluations() if not e.passed}
    assert failed == {"images_intact"}


def test_the_schedule_grows_the_bank_by_a_new_shard(foundry, instance):
    told = dg.AssetMaterialization("scores", partition="sketchbook-0000")
    instance.report_runless_asset_event(told)
    for _previewed_then_real in range(2):
        foundry_here = {"foundry": foundry}
        with dg.build_schedule_context(instance=instance, resources=foundry_here) as context:
            assert jobs.grow_bank(context).partition_key == "sketchbook-0001"
    assert instance.get_dynamic_partitions(str(SHARDS.name)) == ["sketchbook-0001"]


def test_aggregates_follow_once_every_shard_is_there(foundry, instance):
    instance.add_dynamic_partitions(str(SHARDS.name), ["sketchbook-0000", "sketchbook-0001"])
    _refresh(foundry, instance, "sketchbook-0000")
    cursor = _requested(instance, expected=set())
    _refresh(foundry, instance, "sketchbook-0001")
    _requested(instance, expected={"steps"}, cursor=cursor)
    assert foundry.home.lake.partitions(SCORES) == ["sketchbook-0000", "sketchbook-0001"]


def _refresh(foundry, instance, shard):
    here = dg.Definitions(
        ASSETS, jobs=[jobs.refresh_data], asset_checks=CHECKS, resources={"foundry": foundry}
    )
    job = here.resolve_job_def("refresh_data")
    assert job.execute_in_process(instance=instance, partition_key=shard, run_config=QUIET).success


def _requested(instance, expected, cursor=None):
    ticked = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=cursor)
    names = {name for name in NODES if ticked.get_num_requested(dg.AssetKey(name))}
    assert expected <= names if expected else not names
    return ticked.cursor


def test_shards_told_at_the_same_time_are_those_told_one_by_one(foundry, instance, tmp_path):
    outcome = run_lineage(foundry, instance, shards=2, jobs=2)
    assert {f"scores[sketchbook-000{n}]" for n in (0, 1)} <= set(outcome.materialized)

    alone = FoundryResource(profile=foundry.profile, root=str(tmp_path / "alone"))
    with open_instance(alone.home) as other:
        run_lineage(alone, other, shards=2, jobs=1)
    assert foundry.home.lake.content_hash(
        SCORES, "sketchbook-0001"
    ) == alone.home.lake.content_hash(SCORES, "sketchbook-0001")
