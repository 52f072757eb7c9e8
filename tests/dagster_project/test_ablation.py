"""The ablation's plumbing, with a launcher that hands out the base model instead of training it."""

import textwrap

import dagster as dg
import pytest

from assets.checkpoints import training
from assets.core.foundry import FoundryResource
from assets.evaluation.variants import VARIANTS
from dagster_project.run import run_lineage
from schemas.training import CHECKPOINTS, EVALUATIONS
from tests.dagster_project.test_training_lineage import PROFILE
from tests.helpers.fake_launcher import FakeLauncher

pytestmark = pytest.mark.slow

ABLATION_CHECKPOINTS = {
    "ablation_rl_no_step",
    "ablation_rl_no_accuracy",
    "ablation_one_agent",
    "ablation_unfiltered",
}


@pytest.fixture
def foundry(tmp_path):
    path = tmp_path / "ablation.yaml"
    text = textwrap.dedent(PROFILE).replace("side_by_side: true", "side_by_side: false")
    path.write_text(text.replace("shard_size: 60", "shard_size: 40"))
    return FoundryResource(profile=str(path), root=str(tmp_path / "lake"))


@pytest.fixture
def launcher(monkeypatch):
    launcher = FakeLauncher()
    monkeypatch.setattr(training, "run_job", launcher.run_job)
    return launcher


def test_the_ablation_trains_its_own_checkpoints_and_evaluates_every_variant(
    foundry, instance, launcher
):
    run_lineage(foundry, instance, shards=1)
    assert len(launcher.jobs) == 3
    evaluated = instance.get_latest_materialization_event(dg.AssetKey("evaluation"))
    agreed = evaluated.asset_materialization.metadata["people/agreement"].value
    assert "full_rl | critic and scorer |" in agreed and "critic and people | 0 | –" in agreed
    run_lineage(foundry, instance, shards=1, select=["ablation"])
    assert {row.variant for row in foundry.rows(EVALUATIONS)} >= set(VARIANTS)
    names = {row.name for row in foundry.rows(CHECKPOINTS)}
    assert {name for name in names if name.startswith("ablation")} == ABLATION_CHECKPOINTS
    assert len(launcher.jobs) == 3 + len(ABLATION_CHECKPOINTS)
    assert not run_lineage(foundry, instance, shards=1, select=["ablation"]).materialized
