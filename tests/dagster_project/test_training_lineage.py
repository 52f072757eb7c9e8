"""From a shard of prompts to promoted checkpoints and the ablation: real trainers, a few steps."""

import json
import shutil
from io import BytesIO
from pathlib import Path

import dagster as dg
import pytest
from PIL import Image

from assets.checkpoints.assets import rollouts_sheet
from assets.core.foundry import FoundryResource
from dagster_project.run import run_lineage
from schemas.curation import CRITIC_RL, PLANNER_SFT
from schemas.training import CHECKPOINTS, EVALUATIONS, ROLLOUTS
from tests.dagster_project.conftest import opened, trained_foundry
from tests.helpers.command import interleave
from tests.helpers.ticks import ConditionTicks, run_job
from training.registry import CheckpointRegistry

pytestmark = pytest.mark.long

METRICS = {
    "plan_valid",
    "plan_correct",
    "verdict_accuracy_true",
    "verdict_accuracy_false",
    "step_reward",
    "final_success",
    "generator_calls",
}
MADE = ("base_model", "planner_sft_checkpoint", "critic_sft_checkpoint", "critic_rl_checkpoint")


@pytest.fixture(scope="module")
def foundry(trained_folder, tmp_path_factory) -> FoundryResource:
    return trained_foundry(trained_folder, tmp_path_factory.mktemp("trained") / "lake")


@pytest.fixture(scope="module")
def instance(foundry):
    with opened(foundry) as instance:
        yield instance


@pytest.fixture(scope="module")
def trained(foundry, instance):
    """The whole lineage, in a copy in which only what promotes is other than it was."""
    return run_lineage(foundry, instance, shards=1)


def statuses(foundry):
    return {row.name: row.status for row in CheckpointRegistry(foundry.home).rows()}


def test_it_ends_in_promoted_checkpoints(trained, foundry):
    assert set(trained.materialized) == {"evaluation", "promotion"}, "nothing is trained again"
    base, planner, sft, rl = (CheckpointRegistry(foundry.home).rows(name)[-1] for name in MADE)
    assert base.parent is None
    assert planner.parent == sft.parent == f"base_model/{base.version}"
    assert rl.parent == f"critic_sft_checkpoint/{sft.version}"
    assert all(row.dataset_version for row in (planner, sft, rl))
    assert json.loads(planner.metrics)["steps"] == 4
    assert statuses(foundry)[MADE[1]] == statuses(foundry)[MADE[2]] == "promoted"
    assert statuses(foundry)[MADE[3]] == "candidate", "one step of GRPO gains nothing"


def test_curves_and_rollouts_of_grpo_are_shown(trained, foundry, instance):
    event = instance.get_latest_materialization_event(dg.AssetKey(MADE[3]))
    metadata = event.asset_materialization.metadata
    events = list(Path(metadata["tracking"].path).glob("events.out.tfevents.*"))
    assert events and b"actor/pg_loss" in events[0].read_bytes()
    assert metadata["curves"].value.startswith("![") and "| step |" in metadata["samples"].value
    rollouts, judged = foundry.rows(ROLLOUTS), foundry.rows(CRITIC_RL)[0]
    assert len(rollouts) == 4 and {row.step for row in rollouts} == {1}
    assert ("rollouts" in metadata) == any(row.image for row in rollouts)
    drawn = [row.model_copy(update={"image": judged.edited_image}) for row in rollouts]
    sheet = Image.open(
        BytesIO(rollouts_sheet(foundry.home, {judged.row_id: judged.edited_image}, drawn))
    )
    assert sheet.height > sheet.width / 3, "a row for each of the four"


def test_images_plots_and_costs_are_the_first_that_is_shown(trained, instance):
    for name in ("trajectories", MADE[3], "evaluation"):
        event = instance.get_latest_materialization_event(dg.AssetKey(name))
        metadata = event.asset_materialization.metadata
        images = {key for key, value in metadata.items() if str(value.value).startswith("![")}
        costs = {"model_calls", "metrics/hours"} & metadata.keys()
        assert images and costs and images | costs <= {*list(metadata)[:8]}, name


def test_every_metric_is_evaluated(trained, foundry):
    rows = foundry.rows(EVALUATIONS)
    names = ("heldout-dev", "heldout-test", "heldout-category-test")
    assert {row.benchmark for row in rows} <= {f"sketchbook-{name}" for name in names}
    # Plans that are none, as such beginners write, are not drawn.
    assert {row.metric for row in rows if row.variant == "full_rl"} >= METRICS - {"generator_calls"}
    assert {row.metric for row in rows} >= METRICS
    assert {row.variant for row in rows} == {"generator_only", "planner_sft", "full_sft", "full_rl"}


def test_a_second_run_trains_nothing(trained, foundry, instance):
    before = foundry.home.lake.read(CHECKPOINTS)
    again = run_lineage(foundry, instance, shards=1)
    assert set(again.materialized) <= {"evaluation", "promotion"}  # now also of what is promoted
    assert foundry.home.lake.read(CHECKPOINTS) == before
    assert not run_lineage(foundry, instance, shards=1).materialized


def test_retraining_on_the_same_rows_is_evaluation_only(trained, foundry, instance):
    versions = [(row.name, row.version) for row in CheckpointRegistry(foundry.home).rows()]
    assert run_job("retrain_planner", foundry, instance).success
    assert [(row.name, row.version) for row in CheckpointRegistry(foundry.home).rows()] == versions


def test_versions_are_listed_put_in_use_and_taken_back_by_command(trained, foundry, capsys):
    def run(*args):
        done = interleave(capsys, *args, INTERLEAVE_HOME=foundry.root)
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = run("checkpoints")
    assert all(name in listed for name in MADE) and "promoted" in listed
    registry = CheckpointRegistry(foundry.home)
    first = registry.rows(MADE[2])[-1]
    shutil.copytree(
        registry.folder(MADE[2], first.version), registry.folder(MADE[2], "0123456789ab")
    )
    registry.register(first.model_copy(update={"version": "0123456789ab", "status": "candidate"}))
    run("promote", MADE[2], "0123456789ab")
    assert registry.promoted(MADE[2]).version == "0123456789ab"
    run("rollback", MADE[2])
    assert registry.promoted(MADE[2]).version == first.version


def test_new_rows_start_a_training_once_they_are_exported(trained, foundry, instance):
    ticks = ConditionTicks(foundry, instance)
    assert not ticks.next()
    assert not ticks.next(after_days=1), "nothing is new"
    rows = foundry.rows(PLANNER_SFT)
    more = [row.model_copy(update={"row_id": f"{row.row_id}-again"}) for row in rows[:5]]
    foundry.home.lake.write(PLANNER_SFT, [*rows, *more])
    assert not ticks.next(after_days=1), "it waits for `exports`"
    run_lineage(foundry, instance, shards=1, select=["exports"])
    followers = {"rubrics", "planner_rl_checkpoint", "evaluation", "promotion"}
    assert ticks.next().keys() == {MADE[1], *followers}, "in one run"
