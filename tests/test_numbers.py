"""Numbers that decide what is trained and reported: each change shows in the diff of a snapshot."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from assets.core.profile import load_profile
from training.grpo.recipe import CriticGrpoSettings
from training.sft.recipe import read_recipe

ROOT = Path(__file__).parents[1]
# Files -> where their numbers are from.
SOURCES = {
    "profiles/*.yaml": "paper, sections 3 and 4.1; prices: Google's list; the rest is ours",
    "training/sft/recipes/*": "paper, section 4.1; reference: sft_planner.yaml, sft_critic.yaml",
    "training/grpo/overrides/*.yaml": "paper, section 4.1; reference: its RL configuration",
    "inference/backends/diffusers/registry.yaml": "model cards; data_gen/ of the reference",
    "assets/benchmarks/published.yaml": "paper, tables 1 to 5",
}


def read(path: Path) -> object:
    return yaml.safe_load(path.read_text("utf-8"))  # JSON is YAML


def groups(content: object, path: str = "") -> Iterator[str]:
    """A line for every mapping that has a number, with all of its values that are no mappings."""
    match content:
        case dict():
            plain = {name: value for name, value in content.items() if is_plain(value)}
            if any(has_number(value) for value in plain.values()):
                yield f"{path}: {json.dumps(plain)}"
            for name in (name for name in content if name not in plain):
                yield from groups(content[name], f"{path}.{name}" if path else str(name))
        case list() if not is_plain(content):
            for number, value in enumerate(content):
                yield from groups(value, f"{path}.{number}")


def is_plain(value: object) -> bool:
    return all(map(is_plain, value)) if isinstance(value, list) else not isinstance(value, dict)


def has_number(value: object) -> bool:
    if isinstance(value, list):
        return any(map(has_number, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


@pytest.mark.parametrize("pattern", SOURCES)
def test_numbers_are_those_of_the_snapshot(pattern, snapshot):
    files = sorted(ROOT.glob(pattern))
    assert files
    lines = [f"source: {SOURCES[pattern]}"]
    for file in files:
        lines += [file.name, *groups(read(file))]
    assert lines == snapshot


def test_numbers_of_grpo_recipes_are_those_of_the_snapshot(snapshot):
    """Paper, section 4.1, and configuration of the reference; `sketch` is ours."""
    recipes = ("paper", "reference", "lora", "sketch")
    settings = {name: CriticGrpoSettings(recipe=name).model_dump(mode="json") for name in recipes}
    assert list(groups(settings)) == snapshot


def test_profile_paper_has_the_papers_numbers():
    """What the paper states; it names neither thresholds nor a theta."""
    paper = load_profile("paper")
    assert paper.roles.model_dump() == {
        "planner": "gemini",
        "generator": {"images": 1, "gemini": 1},
        "critic": "gemini",
        "scorer": "gemini",
    }
    teachers = (paper.gemini.planner, paper.gemini.critic, paper.gemini.scorer)
    assert {teacher.model for teacher in teachers if teacher} == {"gemini-2.5-pro"}
    drawing = (paper.gemini.generator, paper.images.generator)
    names = [generator.model for generator in drawing if generator]
    assert names == ["gemini-3-pro-image-preview", "flux2-klein-9b"]
    assert paper.sizes["full"] * paper.bank.shard_size == 40_000
    assert paper.sizes["pilot"] * paper.bank.shard_size == 3_000
    assert paper.targets == {"planner_sft": 80_000, "critic_sft": 112_000, "critic_rl": 13_000}
    assert (paper.loop.t_max, paper.loop.conditioning) == (5, "last")
    curation = paper.curation
    rules = {"negative_trend", "degradation", "persistent_low_quality"}
    assert set(curation.filter.rules) == rules
    assert (curation.split.unit, curation.split.ratio, curation.split.theta) == ("step", 2.0, None)
    assert curation.critic.balance_sft.mode != "none" != curation.critic.balance_rl.mode


def test_profile_paper_trains_with_the_papers_numbers():
    """Section 4.1."""
    training = load_profile("paper").training
    assert training and training.base_model.model == "Qwen/Qwen3-VL-8B-Instruct"
    for settings in (training.planner_sft, training.critic_sft):
        recipe = read_recipe(settings)
        options = recipe.options
        assert (options["num_train_epochs"], options["learning_rate"], recipe.batch) == (
            2,
            2e-5,
            32,
        )
        assert options["image_max_pixels"] == 1024 * 1024
    critic = training.critic_rl
    assert (critic.learning_rate, critic.batch, critic.n, critic.kl) == (2e-6, 16, 8, 1e-3)
    assert (critic.reward.alpha, critic.reward.form, critic.max_steps) == (0.2, "paper", None)
