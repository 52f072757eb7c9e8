"""Recipes of the ablation's own checkpoints, which differ from the profile's in one thing each."""

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path

from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT, STEPS
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from training.rewards.settings import Part
from training.sft.settings import SftSettings
from warehouse import Home, ImageStore

from ..checkpoints import recipes
from ..checkpoints.recipes import DataSet, Recipe
from ..core.foundry import FoundryResource
from ..curation.critic_sets import build_critic_sft
from ..curation.exports.publisher import export_all
from ..curation.settings import CurationSettings
from ..curation.steps import build_steps
from . import variants
from .agents import Versions

RecipeOf = Callable[[FoundryResource], Recipe]
_SOURCES = (PROMPTS, PLANS, TRAJECTORIES, ATTEMPTS, SCORES)


def versions(foundry: FoundryResource) -> Versions:
    """The version of every checkpoint that the profile makes now, computed when it is needed."""

    def version(recipe_of: RecipeOf) -> str:
        return recipe_of(foundry).version

    recipes_of = _LINEAGE_RECIPES | ABLATION_RECIPES
    return {name: partial(version, recipe_of) for name, recipe_of in recipes_of.items()}


def unfiltered_critic_data(home: Home, settings: CurationSettings) -> DataSet:
    """Critic SFT samples of all steps, also of those that the filter drops, for LLaMA-Factory.

    Everything but the filter is as in the profile: verdicts, balance, agent prompts.

    Raises:
        FoundryError: the export cannot be written.
    """
    overlay = OverlayHome(home.local / "ablation" / "unfiltered", home)
    unfiltered = _without_filter(settings)
    _copy_sources(home, overlay)
    overlay.lake.write(STEPS, build_steps(overlay, unfiltered)[0])
    overlay.lake.write(CRITIC_SFT, build_critic_sft(overlay, unfiltered)[0])
    export_all(overlay, unfiltered)
    contents = {CRITIC_SFT.name: overlay.lake.content_hash(CRITIC_SFT)}
    return DataSet(overlay.exports / "llamafactory", contents, overlay.lake.rows(CRITIC_SFT))


class OverlayHome(Home):
    """A home with a lake and exports of its own that reads the images of another home."""

    def __init__(self, root: Path, main: Home) -> None:
        super().__init__(root)
        self._main = main

    @cached_property
    def images(self) -> ImageStore:
        return self._main.images


def _without_filter(settings: CurationSettings) -> CurationSettings:
    return settings.model_copy(
        update={
            "filter": settings.filter.model_copy(update={"rules": ()}),
            "exports": settings.exports.model_copy(update={"formats": ("llamafactory",)}),
        }
    )


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
    data = recipes.exported_data(foundry, "verl", CRITIC_RL)
    return recipes.grpo(foundry, name, recipes.critic_sft(foundry), data, settings)


def _one_agent(foundry: FoundryResource) -> Recipe:
    """One model for planner and critic, trained on both data sets for the steps of both."""
    data = recipes.exported_data(foundry, "llamafactory", CRITIC_SFT, PLANNER_SFT)
    settings = _joint_settings(foundry.training.critic_sft, foundry.training.planner_sft)
    return recipes.sft(variants.ONE_AGENT, "both", recipes.base_model(foundry), data, settings)


def _unfiltered(foundry: FoundryResource) -> Recipe:
    """The critic's SFT on unfiltered steps."""
    data = unfiltered_critic_data(foundry.home, foundry.settings.curation)
    base, settings = recipes.base_model(foundry), foundry.training.critic_sft
    return recipes.sft(variants.UNFILTERED, "critic", base, data, settings)


def _joint_settings(critic: SftSettings, planner: SftSettings) -> SftSettings:
    """The critic's settings, with the steps of both where they are limited."""
    limits = critic.max_steps, planner.max_steps
    max_steps = None if None in limits else sum(limit or 0 for limit in limits)
    return critic.model_copy(update={"max_steps": max_steps})


_LINEAGE_RECIPES: dict[str, RecipeOf] = {
    variants.BASE: recipes.base_model,
    variants.PLANNER: recipes.planner_sft,
    variants.CRITIC_SFT: recipes.critic_sft,
    variants.CRITIC_RL: recipes.critic_rl,
}
# Checkpoints that only the ablation needs.
ABLATION_RECIPES: dict[str, RecipeOf] = {
    variants.NO_STEP: partial(_rl_without, "step", variants.NO_STEP),
    variants.NO_ACCURACY: partial(_rl_without, "accuracy", variants.NO_ACCURACY),
    variants.ONE_AGENT: _one_agent,
    variants.UNFILTERED: _unfiltered,
}
