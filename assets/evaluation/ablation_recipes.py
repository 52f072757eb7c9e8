"""Recipes of the ablation: checkpoints that differ from the profile's in one thing each, and all
checkpoints under other training seeds.

A training seed is added to the seed of every training. Checkpoints of seed 0 are the profile's own;
others have names of their own, so that nothing takes them for the newest version of an agent.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from inference.calls.hashing import content_digest
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT
from training.grpo.recipe import GrpoSettings
from training.rewards.reward import Part
from training.settings import TrainingSettings
from training.sft.recipe import SftSettings, read_recipe
from warehouse import Home

from ..checkpoints import recipes
from ..checkpoints.recipes import LINEAGE, DataSet, Recipe, RecipeOf
from ..core.foundry import FoundryResource
from ..curation.settings import CurationSettings
from . import variants
from .ablation_data import SOURCES, rl_label_data, unfiltered_critic_data

_SFT_PASSES = 3  # over a sequence: forward, and backward, which counts as two
_BUILT: dict[tuple[str, str, str], DataSet] = {}


def checkpoint_recipe(
    foundry: FoundryResource, name: str, training_seed: int | None = None
) -> Recipe:
    """The recipe of a checkpoint of the lineage or the ablation; None: without a training seed."""
    recipe_of = (LINEAGE | ABLATION_RECIPES)[name]
    own = recipe_of(foundry)
    if training_seed is None:
        return own
    seeded = foundry.with_training(_with_seed(foundry.training, training_seed))
    return _renamed(recipe_of(seeded), own, training_seed)


def _renamed(recipe: Recipe, own: Recipe, training_seed: int) -> Recipe:
    """The profile's own recipe if it is the same, else one with another name, as its parents."""
    if recipe.version == own.version:
        return own
    parent = recipe.parent
    if parent and own.parent:
        parent = _renamed(parent, own.parent, training_seed)
    return replace(recipe, name=f"{recipe.name}_seed_{training_seed}", parent=parent)


def _with_seed(training: TrainingSettings, training_seed: int) -> TrainingSettings:
    """The trainings of agents with another seed; the base model is the same."""
    planner, critic, rl = training.planner_sft, training.critic_sft, training.critic_rl
    return training.model_copy(
        update={
            "planner_sft": planner.model_copy(update={"seed": planner.seed + training_seed}),
            "critic_sft": critic.model_copy(update={"seed": critic.seed + training_seed}),
            "critic_rl": rl.model_copy(update={"seed": rl.seed + training_seed}),
        }
    )


def _rl_without(part: Part, name: str, foundry: FoundryResource) -> Recipe:
    """The critic's GRPO without one part of its reward."""
    settings = foundry.training.critic_rl
    reward = settings.reward.model_copy(update={"without": (part,)})
    settings = settings.model_copy(update={"reward": reward})
    data = recipes.exported(foundry, "verl", CRITIC_RL)
    return recipes.grpo(foundry, name, recipes.critic_sft(foundry), data, settings)


def _sft_on_rl_labels(foundry: FoundryResource) -> Recipe:
    """The SFT critic, fine-tuned on the labels of GRPO's rows with about as much computation."""
    data = _built(rl_label_data, foundry)
    settings = foundry.training.critic_sft
    sequences = _rl_sequences(foundry.training.critic_rl, data)
    passes = _rl_passes(foundry.training.critic_rl)
    steps = sequences * passes / _SFT_PASSES / read_recipe(settings).batch
    settings = settings.model_copy(update={"max_steps": math.ceil(steps)})
    parent = recipes.critic_sft(foundry)
    return recipes.sft(variants.SFT_ON_RL_LABELS, "critic", parent, data, settings)


def _rl_passes(settings: GrpoSettings) -> int:
    """Passes of GRPO over a rollout: sampled, trained on, and its old probabilities computed, which
    on the CPU are those of its sampling (bypass mode)."""
    return 1 + _SFT_PASSES + bool(settings.gpus)


def _rl_sequences(settings: GrpoSettings, data: DataSet) -> int:
    """Rollouts that GRPO trains on; without a number of steps, of all rows once."""
    prompts = settings.max_steps * settings.batch if settings.max_steps else data.rows
    return prompts * settings.n


def _one_agent(foundry: FoundryResource) -> Recipe:
    """One model for planner and critic: rows of each role as often as its own training has them.

    The learning rate is the geometric mean of both, other options are the critic's where the
    planner has none: one model has one optimizer.
    """
    planner, critic = foundry.training.planner_sft, foundry.training.critic_sft
    data = recipes.exported(foundry, "llamafactory", CRITIC_SFT, PLANNER_SFT)
    changes: dict[str, Any] = {
        "learning_rate": math.sqrt(_learning_rate(planner) * _learning_rate(critic)),
        "options": critic.options | planner.options,
    }
    repeats = {CRITIC_SFT.name: _epochs(critic), PLANNER_SFT.name: _epochs(planner)}
    if planner.max_steps and critic.max_steps:
        changes["max_steps"], repeats = planner.max_steps + critic.max_steps, {}
    else:
        changes["epochs"] = 1.0
    settings = critic.model_copy(update=changes)
    base = recipes.base_model(foundry)
    return recipes.sft(variants.ONE_AGENT, "both", base, data, settings, repeats)


def _unfiltered(foundry: FoundryResource) -> Recipe:
    """The critic of unfiltered rows, with as many steps as the critic of curated ones."""
    data = _built(unfiltered_critic_data, foundry)
    settings = foundry.training.critic_sft
    if not settings.max_steps:
        rows = recipes.exported(foundry, "llamafactory", CRITIC_SFT).rows
        steps = math.ceil(rows / read_recipe(settings).batch) * _epochs(settings)
        settings = settings.model_copy(update={"max_steps": math.ceil(steps)})
    base = recipes.base_model(foundry)
    return recipes.sft(variants.UNFILTERED, "critic", base, data, settings)


def _built(build: Callable[[Home, CurationSettings], DataSet], foundry: FoundryResource) -> DataSet:
    """Rows of the ablation, made once a process: every seed's recipes name them."""
    home, settings = foundry.home, foundry.settings.curation
    sources = [home.lake.content_hashes(table) for table in SOURCES]
    key = build.__name__, home.root, content_digest([sources, settings.model_dump(mode="json")])
    if key not in _BUILT:
        _BUILT[key] = build(home, settings)
    return _BUILT[key]


def _epochs(settings: SftSettings) -> float:
    return float(read_recipe(settings).options.get("num_train_epochs", 3.0))  # the trainer's own


def _learning_rate(settings: SftSettings) -> float:
    return float(read_recipe(settings).options.get("learning_rate", 5e-5))  # the trainer's own


# Checkpoints that only the ablation needs.
ABLATION_RECIPES: dict[str, RecipeOf] = {
    variants.SFT_ON_RL_LABELS: _sft_on_rl_labels,
    variants.NO_STEP: partial(_rl_without, "step", variants.NO_STEP),
    variants.NO_ACCURACY: partial(_rl_without, "accuracy", variants.NO_ACCURACY),
    variants.ONE_AGENT: _one_agent,
    variants.UNFILTERED: _unfiltered,
}
