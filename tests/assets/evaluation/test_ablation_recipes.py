"""The ablation's rows (of overlays, beside an unchanged lake) and its recipes by training seed."""

import json
from dataclasses import replace

import orjson
import pytest

from assets.core.foundry import FoundryResource
from assets.curation.critic_sets import build_critic_rl
from assets.curation.settings import CurationSettings
from assets.curation.steps import build_steps
from assets.evaluation.ablation import checkpoint_recipe, rl_label_data, unfiltered_critic_data
from inference.agent_prompts.formatting import read_verdict
from inference.backends.sketch.backend import SketchGenerator
from schemas import FoundryError
from schemas.curation import CRITIC_SFT, PLANNER_SFT, STEPS
from schemas.trajectories import ATTEMPTS
from tests.assets.evaluation.sample_lake import SKETCH_ROLES, write_sample_lake
from training.grpo.recipe import PlannerGrpoSettings
from warehouse import Home


@pytest.fixture(scope="module")
def lake_of_60(tmp_path_factory):
    """A lake with its steps."""
    home = Home(tmp_path_factory.mktemp("ablation") / "home")
    # Of full size: its teacher contradicts scores.
    write_sample_lake(home, 60, replace(SKETCH_ROLES, generator=SketchGenerator()))
    return home


def rows_of(data):
    rows = orjson.loads((data.folder / "critic_sft.json").read_bytes())
    assert len(rows) == data.rows > 0
    assert all((data.folder / image).is_file() for row in rows for image in row["images"])
    data.require()
    return {row["row_id"]: read_verdict(row["messages"][-1]["content"]) for row in rows}


def test_unfiltered_data_has_every_scored_attempt_once_and_leaves_the_lake_unchanged(lake_of_60):
    home = lake_of_60
    settings = CurationSettings()
    steps = build_steps(home, settings)[0].read_all().to_pylist()
    assert any(step["drop_reason"] for step in steps)
    data = unfiltered_critic_data(home, settings)
    assert not home.lake.partitions(STEPS) and not home.lake.partitions(CRITIC_SFT)
    assert not home.exports.exists()
    assert unfiltered_critic_data(home, settings).version == data.version
    without_rules = settings.filter.model_copy(update={"rules": ()})
    unfiltered = build_steps(home, settings.model_copy(update={"filter": without_rules}))[0]
    kept = unfiltered.read_all().to_pylist()
    sft = {(s["trajectory_id"], s["step_number"]) for s in kept if s["split"] == "sft"}
    attempts = home.lake.read(ATTEMPTS).to_pylist()
    expected = {
        f"{a['trajectory_id']}/{a['step_number']}/{a['iteration']}/0": a["accepted"]
        for a in attempts
        if (a["trajectory_id"], a["step_number"]) in sft
        and (a["accepted"] or a["refined_prompt"].strip())
    }
    found = rows_of(data)
    assert {row: verdict.accepted for row, verdict in found.items()} == expected


@pytest.fixture(scope="module")
def curated(lake_of_60):
    """With its steps, which the first test must not find."""
    lake_of_60.lake.write(STEPS, build_steps(lake_of_60, CurationSettings())[0])
    return lake_of_60


def test_the_control_has_the_rows_and_labels_of_rl(curated):
    home, settings = curated, CurationSettings()
    rl = {row["row_id"]: row for row in build_critic_rl(home, settings)[0].read_all().to_pylist()}
    found = rows_of(rl_label_data(home, settings))
    assert {row: verdict.accepted for row, verdict in found.items()} == {
        row: content["evaluation"]["success"] for row, content in rl.items()
    }
    teacher = {
        f"{a['trajectory_id']}/{a['step_number']}/{a['iteration']}": a
        for a in home.lake.read(ATTEMPTS).to_pylist()
    }
    for row, verdict in found.items():
        said = teacher[row.rpartition("/")[0]]
        agrees = said["accepted"] == verdict.accepted
        assert verdict.reasoning == (said["reasoning"].strip() if agrees else "")
        assert verdict.refined_prompt in ("", said["refined_prompt"].strip())
    assert any(teacher[r.rpartition("/")[0]]["accepted"] != v.accepted for r, v in found.items())


@pytest.fixture(scope="module")
def foundry(curated):
    """With two training seeds."""
    noise = {"options": {"neftune_noise_alpha": 5}}
    training = {
        "planner_sft": {"epochs": 6, "learning_rate": 1.0e-3, **noise},
        "critic_sft": {"epochs": 5, "learning_rate": 4.0e-4},
        "critic_rl": {"max_steps": 40, "batch": 16, "n": 8},
    }
    seeds = {"ablation": {"training_seeds": [0, 1]}}
    sections = {"training": training, "evaluation": seeds, "size_changes": {}}
    return FoundryResource(root=curated.root, sections=json.dumps(sections))


def test_the_first_seed_is_the_lineages_and_others_have_names_of_their_own(foundry):
    own = checkpoint_recipe(foundry, "critic_rl_checkpoint")
    first, second = (checkpoint_recipe(foundry, "critic_rl_checkpoint", seed) for seed in (0, 1))
    assert (first.name, first.version) == (own.name, own.version)
    assert second.name == "critic_rl_checkpoint_seed_1" and second.version != own.version
    assert second.parent.name == "critic_sft_checkpoint_seed_1"
    assert second.settings.seed == own.settings.seed + 1
    assert second.parent.settings.seed == own.parent.settings.seed + 1
    assert second.parent.parent.version == own.parent.parent.version  # one base model
    assert second.parent.parent.name == "base_model"


def test_one_agent_has_each_roles_rows_as_often_as_its_own_training(foundry):
    recipe = checkpoint_recipe(foundry, "ablation_one_agent")
    assert recipe.inputs["repeats"] == {CRITIC_SFT.name: 5, PLANNER_SFT.name: 6}
    assert recipe.settings.epochs == 1
    assert recipe.settings.learning_rate == pytest.approx((1e-3 * 4e-4) ** 0.5)
    assert recipe.settings.options == {"neftune_noise_alpha": 5}


def test_the_control_has_as_much_computation_as_rl(foundry):
    recipe = checkpoint_recipe(foundry, "ablation_sft_on_rl_labels", 1)
    # 40 x 16 x 8 rollouts, each read four times; SFT reads a sample three times, 32 a step.
    assert recipe.settings.max_steps == 214 and recipe.settings.seed == 43
    assert recipe.parent.name == "critic_sft_checkpoint_seed_1"


def test_the_one_agent_is_reinforced_where_the_profile_says_how(foundry):
    with pytest.raises(FoundryError, match=r"no training\.planner_rl: add it for the varian"):
        checkpoint_recipe(foundry, "ablation_rl_one_agent")
    planner_rl = PlannerGrpoSettings(max_steps=7)
    training = foundry.training.model_copy(update={"planner_rl": planner_rl})
    recipe = checkpoint_recipe(foundry.with_training(training), "ablation_rl_one_agent", 1)
    assert (recipe.role, recipe.settings.reward.of) == ("both", "episode")
    assert recipe.settings.seed == planner_rl.seed + 1 and recipe.settings.max_steps == 7
    assert recipe.parent.name == "ablation_one_agent_seed_1"


def test_credit_by_trajectories_has_fewer_steps_for_its_drawings(foundry):
    by_trajectory, by_episode = (
        checkpoint_recipe(foundry, name)
        for name in ("ablation_rl_trajectory", "ablation_rl_episode")
    )
    assert by_trajectory.parent.version == by_episode.parent.version
    assert (by_trajectory.settings.max_steps, by_episode.settings.max_steps) == (10, 4), "of 40"


def test_credit_by_trajectories_needs_a_grader(foundry):
    ungraded = {"pack": "interleave", "training": {"planner_rl": {}}}
    sections = json.dumps(json.loads(foundry.sections) | ungraded)
    api = FoundryResource(root=foundry.root, sections=sections)
    for name in ("ablation_rl_trajectory", "ablation_rl_episode", "ablation_rl_one_agent"):
        with pytest.raises(FoundryError, match=r"nothing grades the .* of pack interleave"):
            checkpoint_recipe(api, name)
