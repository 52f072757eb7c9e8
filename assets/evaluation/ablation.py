"""The ablation: recipes of checkpoints that differ from the profile's in one thing each, of all
checkpoints under other training seeds, their rows, and their trainings.

A training seed is added to the seed of every training. Checkpoints of seed 0 are the profile's own;
others have names of their own, so that nothing takes them for the newest version of an agent.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from inference.calls.hashing import content_digest
from schemas import FoundryError
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_RL, PLANNER_SFT, STEPS
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from training.grpo.recipe import GrpoSettings
from training.rewards.reward import Part
from training.settings import TrainingSettings
from training.sft.recipe import SftSettings, read_recipe
from warehouse import Home

from ..checkpoints import recipes
from ..checkpoints.recipes import LINEAGE, DataSet, Recipe, RecipeOf, exported_data
from ..checkpoints.training import ensure_checkpoint
from ..core.foundry import FoundryResource
from ..curation.critic_sets import build_critic_sft
from ..curation.exports.publisher import export_all
from ..curation.settings import BalanceSettings, CurationSettings
from ..curation.sources import TrainingSources
from ..curation.steps import build_steps
from . import variants
from .variants import Variant

_SFT_PASSES = 3  # over a sequence: forward, and backward, which counts as two
# Share of the steps, with which credit by trajectories draws about as much as credit by steps.
_STEPS = {"trajectory": 0.25, "episode": 0.1}
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
    names = ("planner_sft", "critic_sft", *training.reinforcements)
    own = {name: getattr(training, name) for name in names}
    seeds = {name: settings.seed + training_seed for name, settings in own.items()}
    return training.model_copy(
        update={name: own[name].model_copy(update={"seed": seed}) for name, seed in seeds.items()}
    )


def _rl_without(part: Part, name: str, foundry: FoundryResource) -> Recipe:
    """The critic's GRPO without one part of its reward."""
    return _other_rl(foundry, name, {"without": (part,)})


def _rl_of(of: str, name: str, foundry: FoundryResource) -> Recipe:
    """The critic's GRPO with credit by trajectories, for about as many drawings."""
    return _other_rl(foundry, name, {"of": of}, share=_STEPS[of])


def _other_rl(
    foundry: FoundryResource, name: str, reward: dict[str, Any], share: float | None = None
) -> Recipe:
    """The critic's GRPO with another reward. `share`: of its steps; None: as many."""
    settings = foundry.training.critic_rl
    data = recipes.exported(foundry, "verl", CRITIC_RL)
    changes: dict[str, Any] = {"reward": settings.reward.model_copy(update=reward)}
    if share:
        steps = settings.max_steps or data.rows // settings.batch
        changes["max_steps"] = math.ceil(steps * share)
    parent = recipes.critic_sft(foundry)
    return recipes.grpo(foundry, name, parent, data, settings.model_copy(update=changes))


def _sft_on_rl_labels(foundry: FoundryResource) -> Recipe:
    """The SFT critic, fine-tuned on the labels of GRPO's rows with about as much computation.

    GRPO passes over a rollout when it is sampled, when it is trained on, and when its old
    probabilities are computed, which on the CPU are those of its sampling (bypass mode).
    """
    data = _built(rl_label_data, foundry)
    settings, grpo = foundry.training.critic_sft, foundry.training.critic_rl
    prompts = grpo.max_steps * grpo.batch if grpo.max_steps else data.rows  # all of them once
    passes = 1 + _SFT_PASSES + bool(grpo.gpus)
    steps = prompts * grpo.n * passes / _SFT_PASSES / read_recipe(settings).batch
    settings = settings.model_copy(update={"max_steps": math.ceil(steps)})
    parent = recipes.critic_sft(foundry)
    return recipes.sft(variants.SFT_ON_RL_LABELS, "critic", parent, data, settings)


def _one_agent(foundry: FoundryResource) -> Recipe:
    """One model for planner and critic: rows of each role as often as its own training has them.

    The learning rate is the geometric mean of both, other options are the critic's where the
    planner has none: one model has one optimizer.
    """
    planner, critic = foundry.training.planner_sft, foundry.training.critic_sft
    data = recipes.exported(foundry, "llamafactory", CRITIC_SFT, PLANNER_SFT)
    rates = [_option(settings, "learning_rate", 5e-5) for settings in (planner, critic)]
    changes: dict[str, Any] = {
        "learning_rate": math.sqrt(rates[0] * rates[1]),
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


def _rl_one_agent(foundry: FoundryResource) -> Recipe:
    """The one agent, reinforced by `planner_rl` on all its answers of whole trajectories.

    Raises FoundryError: the profile has no `planner_rl`.
    """
    settings = foundry.training.planner_rl
    if settings is None:
        raise FoundryError(
            f"profile {foundry.settings.name} has no training.planner_rl: add it for the variant "
            "rl_one_agent"
        )
    reward = settings.reward.model_copy(update={"of": "episode"})
    data = recipes.exported(foundry, "verl", PLANNER_RL)
    changed = settings.model_copy(update={"reward": reward})
    return recipes.grpo(foundry, variants.RL_ONE_AGENT, _one_agent(foundry), data, changed)


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
    key = build.__name__, home.root, content_digest([sources, settings])
    if key not in _BUILT:
        _BUILT[key] = build(home, settings)
    return _BUILT[key]


def _epochs(settings: SftSettings) -> float:
    return _option(settings, "num_train_epochs", 3.0)


def _option(settings: SftSettings, name: str, default: float) -> float:
    """An option of the trainer, whose own value is the default."""
    return float(read_recipe(settings).options.get(name, default))


# Checkpoints that only the ablation needs.
ABLATION_RECIPES: dict[str, RecipeOf] = {
    variants.SFT_ON_RL_LABELS: _sft_on_rl_labels,
    variants.NO_STEP: partial(_rl_without, "step", variants.NO_STEP),
    variants.NO_ACCURACY: partial(_rl_without, "accuracy", variants.NO_ACCURACY),
    variants.RL_TRAJECTORY: partial(_rl_of, "trajectory", variants.RL_TRAJECTORY),
    variants.RL_EPISODE: partial(_rl_of, "episode", variants.RL_EPISODE),
    variants.ONE_AGENT: _one_agent,
    variants.RL_ONE_AGENT: _rl_one_agent,
    variants.UNFILTERED: _unfiltered,
}


SOURCES = (PROMPTS, PLANS, TRAJECTORIES, ATTEMPTS, SCORES)
_ALL_ROWS = BalanceSettings(mode="none")


def unfiltered_critic_data(home: Home, settings: CurationSettings) -> DataSet:
    """The critic's SFT set without curation, for LLaMA-Factory.

    No filter rule drops a step, no chain is cut after its best attempt, no verdict that the scores
    contradict is dropped, nothing is balanced. Left out are only attempts without a score, and
    rejections without a new prompt, which have no answer. The split into SFT and RL stays.

    Raises FoundryError where the export cannot be written, as the other function does.
    """
    verdicts = settings.critic.verdicts.model_copy(
        update={"sft": "critic", "unproven_rewrites": True}
    )
    unfiltered = settings.model_copy(
        update={
            "filter": settings.filter.model_copy(update={"rules": ()}),
            "critic": settings.critic.model_copy(
                update={"verdicts": verdicts, "balance_sft": _ALL_ROWS}
            ),
        }
    )
    steps = build_steps(home, unfiltered)[0].read_all()
    last = pc.subtract(steps["iterations"], 1)
    uncut = steps.set_column(*_column(steps, "best_iteration"), last)
    return _overlay_data(home, "unfiltered", unfiltered, uncut)


def rl_label_data(home: Home, settings: CurationSettings) -> DataSet:
    """The rows of the critic's RL set as SFT samples, labelled by the true verdict of the scores.

    The teacher's reasoning and new prompt are learned where it agrees with the label.
    """
    verdicts = settings.critic.verdicts.model_copy(update={"sft": "scores"})
    critic = settings.critic.model_copy(
        update={"verdicts": verdicts, "balance_sft": settings.critic.balance_rl}
    )
    labelled = settings.model_copy(update={"critic": critic})
    steps = build_steps(home, settings)[0].read_all()
    is_rl = pc.equal(steps["split"], "rl")
    sides = pc.if_else(is_rl, pa.scalar("sft"), pa.scalar(None, pa.string()))
    as_sft = steps.set_column(*_column(steps, "split"), sides)
    return _overlay_data(home, "rl_labels", labelled, as_sft)


def _overlay_data(home: Home, name: str, settings: CurationSettings, steps: pa.Table) -> DataSet:
    """The critic's SFT set of these steps, exported in a home of its own in the local folder."""
    exports = settings.exports.model_copy(update={"formats": ("llamafactory",), "mix": None})
    settings = settings.model_copy(update={"exports": exports})
    overlay = Home(home.local / "ablation" / name)
    overlay.images = home.images  # only the lake and the exports are its own
    _copy_sources(home, overlay)
    overlay.lake.write(STEPS, steps)
    overlay.lake.write(CRITIC_SFT, build_critic_sft(overlay, settings)[0])
    export_all(overlay, settings)
    return exported_data(TrainingSources(overlay, settings), "llamafactory", CRITIC_SFT)


def _copy_sources(home: Home, overlay: Home) -> None:
    """Copy the tables that steps are built from; equal partitions are skipped."""
    for table in SOURCES:
        for partition in home.lake.partitions(table):
            content_hash = home.lake.content_hash(table, partition)
            if content_hash != overlay.lake.content_hash(table, partition):
                overlay.lake.write(table, home.lake.read(table, [partition]), partition)


def _column(table: pa.Table, name: str) -> tuple[int, pa.Field]:
    return table.schema.get_field_index(name), table.schema.field(name)


async def train_variants(
    context: dg.AssetExecutionContext, foundry: FoundryResource, variants: Iterable[Variant]
) -> None:
    """Train the variants' checkpoints that do not exist yet; a killed training resumes.

    With `training.side_by_side` two are trained at a time, of which one at most is GRPO: that uses
    more than one core.
    """
    slots = asyncio.Semaphore(2 if foundry.training.side_by_side else 1)
    reinforcement = asyncio.Semaphore(1)
    trainings: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def train(recipe: Recipe, parent: asyncio.Task[None] | None) -> None:
        if parent:
            await parent
        own = reinforcement if isinstance(recipe.settings, GrpoSettings) else asyncio.Semaphore(1)
        async with own, slots:
            await ensure_checkpoint(context, foundry, recipe)

    def start(recipe: Recipe) -> asyncio.Task[None] | None:
        """The one training of a recipe; None: the asset `base_model` makes it, or it is given."""
        if recipe.role == "base" or recipe.job is None:
            return None
        parent = start(recipe.parent) if recipe.parent else None
        key = recipe.name, recipe.version
        if key not in trainings:
            trainings[key] = asyncio.create_task(train(recipe, parent))
        return trainings[key]

    for variant in variants:
        for reference in variant.agents:
            start(checkpoint_recipe(foundry, reference, variant.training_seed))
    await asyncio.gather(*trainings.values())
