"""What SFT and RL must not share follows from the unit that is split."""

import json

import pytest

from assets.core.foundry import FoundryResource
from assets.curation.checks import outside_training, shared_between_splits
from schemas.curation import CRITIC_RL, CRITIC_SFT, STEPS
from schemas.prompts import PROMPTS
from tests.assets.curation.curated_world import AS_IS, World, curate

CALM, WILD = [(9, True)], [(1, False), (9, True)]


@pytest.fixture
def foundry(tmp_path):
    """A home of one prompt with a step for SFT and one for RL, curated by the unit."""

    def curated(unit: str) -> FoundryResource:
        sections = {"curation": {"split": {"unit": unit, "theta": 2}, "critic": AS_IS}}
        foundry = FoundryResource(root=str(tmp_path / "home"), sections=json.dumps(sections))
        world = World(foundry.home)
        world.add("mixed", CALM, WILD)
        world.add("held", WILD, split="heldout")
        curate(world.write(), foundry.settings.curation, STEPS, CRITIC_SFT, CRITIC_RL)
        return foundry

    return curated


def violations(foundry: FoundryResource) -> list[list]:
    """Of `steps`, `critic_sft` and `critic_rl`."""
    return [
        shared_between_splits(foundry, None),
        outside_training(CRITIC_SFT, "sft", foundry, None),
        outside_training(CRITIC_RL, "rl", foundry, None),
    ]


@pytest.mark.parametrize(("unit", "sides"), [("prompt", {"rl"}), ("step", {"sft", "rl"})])
def test_sets_of_a_unit_share_none_of_it_and_held_out_prompts_are_found(foundry, unit, sides):
    made = foundry(unit)
    splits = made.home.lake.read(STEPS, columns=["prompt_id", "split"]).to_pylist()
    assert {row["split"] for row in splits if row["prompt_id"] == "mixed"} == sides
    assert violations(made) == [[], [], []]
    everything = [row.model_copy(update={"split": "heldout"}) for row in made.rows(PROMPTS)]
    made.home.lake.write(PROMPTS, everything, "toy-0000")
    assert all("held-out" in str(rows) for rows in violations(made)[::2])


def test_what_is_on_both_sides_is_found_by_the_unit(foundry):
    made = foundry("step")
    found = violations(FoundryResource(profile="sketch", root=str(made.home.root)))
    assert all(rows and "mixed" in str(rows) for rows in found), "with unit prompt"
    swapped = [
        row.model_copy(update={"split": {"sft": "rl", "rl": "sft"}.get(row.split)})
        for row in made.rows(STEPS)
    ]
    made.home.lake.write(STEPS, swapped)
    steps, sft, rl = violations(made)
    assert steps == [] and sft and rl, "with unit step"
