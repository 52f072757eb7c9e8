"""Recipes of the ablation's own checkpoints, which differ from the profile's in one thing each."""

from functools import partial

from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT, STEPS
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from training.rewards.reward import Part
from warehouse import Home

from ..checkpoints import recipes
from ..checkpoints.recipes import DataSet, Recipe, RecipeOf
from ..core.foundry import FoundryResource
from ..curation.critic_sets import build_critic_sft
from ..curation.exports.publisher import export_all
from ..curation.settings import CurationSettings
from ..curation.steps import build_steps
from . import variants

_SOURCES = (PROMPTS, PLANS, TRAJECTORIES, ATTEMPTS, SCORES)


def unfiltered_critic_data(home: Home, settings: CurationSettings) -> DataSet:
    """Critic SFT samples of all steps, also of those that the filter drops, for LLaMA-Factory.

    Everything but the filter is as in the profile: verdicts, balance, agent prompts. Raises
    FoundryError where the export cannot be written.
    """
    overlay = Home(home.local / "ablation" / "unfiltered")
    overlay.images = home.images  # only the lake and the exports are its own
    _copy_sources(home, overlay)
    parts = {
        "filter": settings.filter.model_copy(update={"rules": ()}),
        "exports": settings.exports.model_copy(update={"formats": ("llamafactory",), "mix": None}),
    }
    unfiltered = settings.model_copy(update=parts)
    overlay.lake.write(STEPS, build_steps(overlay, unfiltered)[0])
    overlay.lake.write(CRITIC_SFT, build_critic_sft(overlay, unfiltered)[0])
    export_all(overlay, unfiltered)
    return recipes.exported_data(overlay, unfiltered, "llamafactory", CRITIC_SFT)


def _copy_sources(home: Home, overlay: Home) -> None:
    """Copy the tables that steps are built from; equal partitions are skipped."""
    for table in _SOURCES:
        for partition in home.lake.partitions(table):
            content_hash = home.lake.content_hash(table, partition)
            if content_hash != overlay.lake.content_hash(table, partition):
                overlay.lake.write(table, home.lake.read(table, [partition]), partition)


def _rl_without(part: Part, name: str, foundry: FoundryResource) -> Recipe:
    """The critic's GRPO without one part of its reward."""
    settings = foundry.training.critic_rl
    reward = settings.reward.model_copy(update={"without": (part,)})
    settings = settings.model_copy(update={"reward": reward})
    data = recipes.exported(foundry, "verl", CRITIC_RL)
    return recipes.grpo(foundry, name, recipes.critic_sft(foundry), data, settings)


def _one_agent(foundry: FoundryResource) -> Recipe:
    """One model for planner and critic: the critic's settings, but the data and steps of both."""
    data = recipes.exported(foundry, "llamafactory", CRITIC_SFT, PLANNER_SFT)
    settings = foundry.training.critic_sft
    limits = (settings.max_steps, foundry.training.planner_sft.max_steps)
    max_steps = None if None in limits else sum(limit or 0 for limit in limits)
    settings = settings.model_copy(update={"max_steps": max_steps})
    return recipes.sft(variants.ONE_AGENT, "both", recipes.base_model(foundry), data, settings)


def _unfiltered(foundry: FoundryResource) -> Recipe:
    data = unfiltered_critic_data(foundry.home, foundry.settings.curation)
    base, settings = recipes.base_model(foundry), foundry.training.critic_sft
    return recipes.sft(variants.UNFILTERED, "critic", base, data, settings)


# Checkpoints that only the ablation needs.
ABLATION_RECIPES: dict[str, RecipeOf] = {
    variants.NO_STEP: partial(_rl_without, "step", variants.NO_STEP),
    variants.NO_ACCURACY: partial(_rl_without, "accuracy", variants.NO_ACCURACY),
    variants.ONE_AGENT: _one_agent,
    variants.UNFILTERED: _unfiltered,
}
