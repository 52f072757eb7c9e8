"""Evaluation on held-out requests: is a plan right, a verdict, a picture at the end?"""

import dagster as dg

from inference.roles import qualified_name
from schemas.training import EVALUATIONS
from schemas.trajectories import MODEL_CALLS
from training.registry import CheckpointRegistry

from ..core.foundry import FoundryResource
from ..core.node import node
from ..core.progress import progress_of
from .agents import AgentFactory
from .extra_recipes import versions
from .runner import compare, described, store
from .variants import CRITIC_RL, CRITIC_SFT, PLANNER, PROMOTED, VARIANTS, Variant


def draws_and_grades(foundry: FoundryResource, _instance: dg.DagsterInstance) -> list[str]:
    """Whose pictures and grades the numbers are of."""
    return [qualified_name(foundry.roles.generator), qualified_name(foundry.roles.scorer)]


def _held(foundry: FoundryResource) -> list[str | None]:
    """Content of the partitions that this asset wrote; the others are of the ablation."""
    names = [*foundry.settings.evaluation.variants, PROMOTED]
    return [foundry.home.lake.content_hash(EVALUATIONS, name) for name in names]


def _variants(foundry: FoundryResource) -> list[Variant]:
    """Those of the settings, and the system in use, which promotion compares new ones with."""
    registry = CheckpointRegistry(foundry.home)
    planner, critic = registry.promoted(PLANNER), registry.promoted(CRITIC_RL)
    chosen = [VARIANTS[name] for name in foundry.settings.evaluation.variants]
    if planner and critic:
        versions = f"{PLANNER}@{planner.version}", f"{CRITIC_RL}@{critic.version}"
        chosen.append(Variant(PROMOTED, *versions))
    return chosen


EVALUATION = node(
    name="evaluation",
    group="evaluation",
    description="Variants of the system on held-out requests and attempts, item by item.",
    tables=(EVALUATIONS,),
    ledger=(MODEL_CALLS,),
    deps=("prompts", "plans", "trajectories", "scores", PLANNER, CRITIC_SFT, CRITIC_RL),
    sections=("evaluation", "training", "loop"),
    pool="gpu_train",
    facts=draws_and_grades,
    holds=_held,
)


@dg.asset(**EVALUATION.asset_args())
def evaluation(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    cast = AgentFactory(foundry, versions(foundry))
    compared = compare(foundry, cast, _variants(foundry), progress_of(context))
    written = store(foundry, compared)
    metadata = described(foundry, compared, compared.all_rows)
    return EVALUATION.describe(context, foundry, written, metadata)
