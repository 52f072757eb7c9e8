"""The ablation's plumbing, with a launcher that hands out the base model instead of training it."""

import re
from pathlib import Path

import dagster as dg
import pytest

from assets.checkpoints import training
from assets.core.foundry import FoundryResource
from assets.evaluation.variants import VARIANTS
from dagster_project.run import run_lineage
from schemas import FoundryError
from schemas.training import CHECKPOINTS, EVALUATIONS
from tests.dagster_project.conftest import trained_foundry
from tests.helpers.fake_launcher import FakeLauncher

pytestmark = pytest.mark.slow

OWN = {
    "ablation_rl_no_step",
    "ablation_rl_no_accuracy",
    "ablation_one_agent",
    "ablation_unfiltered",
    "ablation_sft_on_rl_labels",
}
LINEAGE = {"planner_sft_checkpoint", "critic_sft_checkpoint", "critic_rl_checkpoint"}
SEEDS = (0, 2)


@pytest.fixture
def foundry(trained_folder, tmp_path):
    foundry = trained_foundry(trained_folder, tmp_path / "lake")
    path = Path(foundry.profile)
    seeds = f"ablation: {{training_seeds: {list(SEEDS)}}}"
    path.write_text(re.sub(r"ablation: \{.*\}", seeds, path.read_text()))
    return foundry


@pytest.fixture
def launcher(monkeypatch):
    launcher = FakeLauncher()
    monkeypatch.setattr(training, "run_job", launcher.run_job)
    return launcher


def _failing_for_the_second_seed(launcher):
    async def run_job(context, job, settings, progress):
        if job.folder.parent.name.endswith(f"_seed_{SEEDS[1]}"):
            raise FoundryError("out of memory")
        return await launcher.run_job(context, job, settings, progress)

    return run_job


def test_the_ablation_trains_its_own_checkpoints_and_evaluates_every_variant(
    foundry, instance, launcher, monkeypatch
):
    run_lineage(foundry, instance, shards=1)
    assert not launcher.jobs, "the lineage is trained"
    evaluated = instance.get_latest_materialization_event(dg.AssetKey("evaluation"))
    agreed = evaluated.asset_materialization.metadata["people/agreement"].value
    assert "full_rl | critic and scorer |" in agreed and "critic and people | 0 | –" in agreed
    before = foundry.rows(EVALUATIONS)
    with monkeypatch.context() as patch, pytest.raises(FoundryError, match="out of memory"):
        patch.setattr(training, "run_job", _failing_for_the_second_seed(launcher))
        run_lineage(foundry, instance, shards=1, select=["ablation"])
    seeds = {row.training_seed for row in foundry.rows(EVALUATIONS)}
    assert seeds == {None, SEEDS[0]}, "a finished seed is stored before the next one is trained"
    run_lineage(foundry, instance, shards=1, select=["ablation"])
    rows = foundry.rows(EVALUATIONS)
    assert [row for row in rows if row.training_seed is None] == before
    found = {(row.variant, row.training_seed) for row in rows}
    assert found >= {(name, seed) for name in VARIANTS for seed in SEEDS}
    assert all(row.benchmark.endswith("-test") for row in rows if row.training_seed is not None)
    agents = {(row.planner, row.critic) for row in rows if row.variant == "full_rl_sampled"}
    assert all(critic.endswith("-sampled") for _, critic in agents)
    assert {planner for planner, _ in agents} == {r.planner for r in rows if r.variant == "full_rl"}
    names = {row.name for row in foundry.rows(CHECKPOINTS)}
    seeded = {f"{name}_seed_2" for name in OWN | LINEAGE}
    assert names == {"base_model", *LINEAGE, *OWN, *seeded}
    assert len(launcher.jobs) == len(OWN) + len(seeded)
    event = instance.get_latest_materialization_event(dg.AssetKey("ablation"))
    metadata = event.asset_materialization.metadata
    assert "| t_max_1 < t_max_3 | +10.2 |" in metadata["relations"].value
    assert "+ critic, reinforced" in metadata["agents"].value
    assert not run_lineage(foundry, instance, shards=1, select=["ablation"]).materialized
    assert len(launcher.jobs) == len(OWN) + len(seeded)
    text = Path(foundry.profile).read_text()
    path = Path(foundry.profile).with_name("fewer.yaml")
    path.write_text(text.replace("ablation: {", "ablation: {variants: [full_sft], "))
    fewer = FoundryResource(profile=str(path), root=foundry.root)
    run_lineage(fewer, instance, shards=1, select=["ablation"])
    seeded_rows = [row for row in fewer.rows(EVALUATIONS) if row.training_seed is not None]
    assert {(row.variant, row.training_seed) for row in seeded_rows} == {
        ("full_sft", seed) for seed in SEEDS
    }
