"""A checkpoint's version follows from everything that its training follows from."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from assets.checkpoints import recipes
from assets.checkpoints.recipes import DataSet, Recipe, sft
from assets.core.profile import load_profile
from schemas import FoundryError
from training.base_model import BaseModelSettings
from training.grpo.recipe import CriticGrpoSettings, PlannerGrpoSettings
from training.settings import TrainingSettings
from training.sft.recipe import SftSettings
from warehouse import Home

BASE = Recipe("base_model", "base", BaseModelSettings(), inputs={"weights": "abc"})
CUSTOM_RECIPE = (
    "gpus: 0\nthreads: 1\nbatch: 2\nbatch_per_device: 1\noptions: {stage: sft, warmup_steps: %s}\n"
)


def data(rows="one"):
    return DataSet(Path("export"), {"critic_sft": rows}, 1, None)


def rl(profile, settings=CriticGrpoSettings, table="critic_rl", **changes):
    profile = load_profile(profile) if isinstance(profile, str) else profile
    foundry = SimpleNamespace(settings=profile, home=SimpleNamespace(root="home"))
    rows = DataSet(Path("export"), {table: "one"}, 1, None)
    return recipes.grpo(foundry, table, BASE, rows, settings(**changes))


def planner_rl(profile, **changes):
    return rl(profile, PlannerGrpoSettings, "planner_rl", **changes)


def changed(settings, path, value):
    """A copy with another value at a dotted path."""
    name, _, rest = path.partition(".")
    inner = changed(getattr(settings, name), rest, value) if rest else value
    return settings.model_copy(update={name: inner})


def version(parent=BASE, rows="one", **settings):
    return sft("critic", "critic", parent, data(rows), SftSettings(**settings)).version


def test_a_version_stays_what_it_is():
    """Another hash would train every checkpoint of an existing home again."""
    inputs = {"a": 1}
    recipe = Recipe("c", "critic", BaseModelSettings(), inputs=inputs, parent=BASE, data=data())
    assert (BASE.version, recipe.version) == ("be21ade28ee5", "a498051b73ce")


@pytest.mark.parametrize(
    "other",
    [
        {"rows": "two"},
        {"epochs": 7},
        {"recipe": "paper"},
        {"parent": Recipe("base_model", "base", BaseModelSettings(), inputs={"weights": "abd"})},
    ],
    ids=["rows", "settings", "recipe", "parent"],
)
def test_a_different_origin_has_a_different_version(other):
    assert version(**other) != version() == version(nodes=1)


def test_the_trainers_version_counts(monkeypatch):
    pinned = {"sft": "llamafactory==0.9.5", "rl": "verl==0.9.1"}
    assert sft("c", "critic", BASE, data(), SftSettings()).inputs["trainer"] == pinned["sft"]
    assert rl("sketch").inputs["trainer"] == pinned["rl"]
    first = version(), rl("sketch").version
    monkeypatch.setattr(recipes, "pinned_version", lambda *_: "another==1")
    assert version() != first[0] and rl("sketch").version != first[1]


def test_the_models_behind_rewards_count_and_need_no_keys(monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    gpu = load_profile("gpu")
    assert list(rl(gpu).inputs["generator"]) == ["images"]
    assert list(rl(gpu).inputs["scorer"]) == ["gemini"]
    assert rl(changed(gpu, "gemini.scorer.model", "another")).version != rl(gpu).version
    moved = changed(gpu, "images.endpoints", gpu.images.endpoints * 2)
    assert rl(moved).version == rl(gpu).version


def test_the_generators_of_rewards_count_instead_of_the_loops():
    gpu = load_profile("gpu")
    several = rl(gpu, reward={"generators": ["images", "gemini"]})
    assert list(several.inputs["generator"]) == ["images", "gemini"]
    assert several.version not in (rl(gpu).version, rl(gpu, reward={}).version)
    assert rl(gpu, reward={"generators": []}).version == rl(gpu).version


def test_rewards_that_are_drawn_from_all_images_make_another_checkpoint():
    gpu = load_profile("gpu")
    recipe = rl(changed(gpu, "loop.conditioning", "all"))
    assert recipe.version != rl(gpu).version
    assert recipe.job("1", Path("/job"), Path("/parent")).payload["loop"]["conditioning"] == "all"


def test_settings_that_a_profile_does_not_use_change_no_version():
    """So that a later field with a default trains no checkpoint again."""
    unused = {"nodes": 1, "options": {}, "attention": None, "lora_rank": 0}
    assert rl("sketch", **unused).version == rl("sketch").version
    assert rl("sketch", options={"data.seed": 3}).version != rl("sketch").version


def test_the_content_of_a_custom_recipe_counts(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(CUSTOM_RECIPE % 1)
    first = version(recipe=path)
    path.write_text(CUSTOM_RECIPE % 2)
    assert version(recipe=path) != first


def test_a_reinforced_planner_follows_from_its_grader_and_not_from_a_generator():
    paper = load_profile("paper")
    judged = changed(paper, "evaluation.judge.model.model", "other")
    recipe = planner_rl(paper)
    assert recipe.role == "planner" and planner_rl(judged).version != recipe.version
    payload = recipe.job("1", Path("/job"), Path("/parent")).payload
    assert payload["data"].endswith("planner_rl.parquet")
    assert payload["judge"].keys() == {"backend", "model"}
    once = changed(paper, "loop.t_max", 1)
    assert planner_rl(once).version == recipe.version
    drawn = {"reward": {"of": "outcome"}}
    assert planner_rl(once, **drawn).version != planner_rl(paper, **drawn).version


def test_a_critic_reinforced_by_trajectories_follows_from_loop_and_grader():
    paper, of_trajectories = load_profile("paper"), {"reward": {"of": "trajectory"}}
    of_steps = {"reward": {"of": "step"}}
    assert rl(paper, **of_steps).version == rl(paper).version, "as before there was a choice"
    for path, value in {"loop.t_max": 1, "evaluation.judge.model.model": "other"}.items():
        other = changed(paper, path, value)
        assert rl(other).version == rl(paper).version
        assert rl(other, **of_trajectories).version != rl(paper, **of_trajectories).version
    other, episodes = changed(paper, "gemini.critic.model", "other"), {"reward": {"of": "episode"}}
    assert rl(other, **of_trajectories).version != rl(paper, **of_trajectories).version
    assert rl(other, **episodes).version == rl(paper, **episodes).version, "the policy judges"


def test_an_agent_of_both_roles_follows_from_how_it_is_asked_to_judge():
    paper, episodes = load_profile("paper"), {"reward": {"of": "episode"}}
    recipe = planner_rl(paper, **episodes)
    question = recipe.job("1", Path("/job"), Path("/parent")).payload["question"]
    assert recipe.role == "both"
    assert question["agent_prompt"] == paper.curation.critic.agent_prompt
    asked = changed(paper, "curation.critic.agent_prompt", "critic-brief")
    assert planner_rl(asked, **episodes).version != recipe.version
    answered = changed(paper, "gemini.critic.model", "other")
    assert planner_rl(answered, **episodes).version == recipe.version, "the policy judges"


def test_plans_and_trajectories_that_nothing_grades_are_not_rewarded(tmp_path):
    def foundry(**changes):
        profile = load_profile("sketch").model_copy(update={"rounds": None, **changes})
        return SimpleNamespace(settings=profile, training=profile.training, home=Home(tmp_path))

    of_trajectories = CriticGrpoSettings(reward={"of": "trajectory"})
    training = TrainingSettings(critic_rl=of_trajectories, planner_rl=PlannerGrpoSettings())
    ungraded = foundry(pack="interleave", training=training)
    with pytest.raises(FoundryError, match=r"the trajectories of pack interleave.*of: step"):
        recipes.critic_rl(ungraded)
    with pytest.raises(FoundryError, match="nothing grades the plans of pack interleave: set `eva"):
        recipes.planner_rl(ungraded)
    with pytest.raises(FoundryError, match=r"profile sketch has no training\.planner_rl: add it"):
        recipes.planner_rl(foundry())
    of_both = TrainingSettings(planner_rl=PlannerGrpoSettings(reward={"of": "episode"}))
    with pytest.raises(FoundryError, match=r"plans and judges: name one as .*planner_rl\.start"):
        recipes.planner_rl(foundry(training=of_both))
