"""The ablation's own checkpoints: recipes that differ from the profile's in one thing each."""

from collections.abc import Callable
from functools import partial

from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT
from training.rewards.settings import Part
from training.sft.settings import SftSettings

from ..checkpoints import recipes
from ..checkpoints.recipes import Recipe
from ..core.foundry import FoundryResource
from . import variants
from .agents import Versions
from .unfiltered import unfiltered_critic_data

RecipeOf = Callable[[FoundryResource], Recipe]


def reinforced_without(part: Part, name: str, foundry: FoundryResource) -> Recipe:
    """The reinforced critic, without one part of its reward."""
    full = foundry.training.critic_rl
    reward = full.reward.model_copy(update={"without": (part,)})
    settings = full.model_copy(update={"reward": reward})
    data = recipes.exported(foundry, "verl", CRITIC_RL)
    return recipes.grpo(foundry, name, recipes.critic_sft(foundry), data, settings)


def one_agent(foundry: FoundryResource) -> Recipe:
    """Planner and critic in one model, taught on both sets together for as long as both."""
    data = recipes.exported(foundry, "llamafactory", CRITIC_SFT, PLANNER_SFT)
    settings = _for_both(foundry.training.critic_sft, foundry.training.planner_sft)
    return recipes.sft(variants.ONE_AGENT, "both", recipes.base_model(foundry), data, settings)


def unfiltered(foundry: FoundryResource) -> Recipe:
    """The taught critic, on the steps that the filter drops as well."""
    data = unfiltered_critic_data(foundry.home, foundry.settings.curation)
    base, settings = recipes.base_model(foundry), foundry.training.critic_sft
    return recipes.sft(variants.UNFILTERED, "critic", base, data, settings)


# What the profile makes anyway.
USUAL: dict[str, RecipeOf] = {
    variants.BASE: recipes.base_model,
    variants.PLANNER: recipes.planner_sft,
    variants.CRITIC_SFT: recipes.critic_sft,
    variants.CRITIC_RL: recipes.critic_rl,
}
# What only the ablation needs.
EXTRA: dict[str, RecipeOf] = {
    variants.NO_STEP: partial(reinforced_without, "step", variants.NO_STEP),
    variants.NO_ACCURACY: partial(reinforced_without, "accuracy", variants.NO_ACCURACY),
    variants.ONE_AGENT: one_agent,
    variants.UNFILTERED: unfiltered,
}


def versions(foundry: FoundryResource) -> Versions:
    """The version of every checkpoint that the profile makes now."""

    def version(recipe_of: RecipeOf) -> str:
        return recipe_of(foundry).version

    return {name: partial(version, recipe_of) for name, recipe_of in (USUAL | EXTRA).items()}


def _for_both(critic: SftSettings, planner: SftSettings) -> SftSettings:
    """The critic's settings; where steps are counted, those of both."""
    if critic.max_steps is None or planner.max_steps is None:
        return critic.model_copy(update={"max_steps": None})
    return critic.model_copy(update={"max_steps": critic.max_steps + planner.max_steps})
