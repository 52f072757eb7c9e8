"""Evaluation on held-out requests: is a plan right, a verdict, a picture at the end?"""

import dagster as dg

from ...inference.roles import name_of
from ...schemas.training import EVALUATIONS
from ...schemas.trajectories import MODEL_CALLS
from ..foundry import Foundry
from ..nodes import node
from ..progress import progress_of
from .comparing import compare, described, store
from .extra_recipes import versions
from .players import Cast
from .variants import CRITIC_RL, CRITIC_SFT, PLANNER, VARIANTS


def draws_and_grades(foundry: Foundry, _instance: dg.DagsterInstance) -> list[str]:
    """Whose pictures and grades the numbers are of."""
    return [name_of(foundry.roles.generator), name_of(foundry.roles.scorer)]


def _held(foundry: Foundry) -> list[str | None]:
    """Content of the partitions that this asset wrote; the others are of the ablation."""
    names = foundry.settings.evaluation.variants
    return [foundry.home.lake.content_hash(EVALUATIONS, name) for name in names]


EVALUATION = node(
    name="evaluation",
    group="evaluation",
    description="Variants of the system on held-out requests and attempts, item by item.",
    tables=(EVALUATIONS,),
    ledger=(MODEL_CALLS,),
    deps=("prompts", "plans", "trajectories", "scores", PLANNER, CRITIC_SFT, CRITIC_RL),
    sections=("evaluation", "training", "loop"),
    automatic=True,
    pool="gpu_train",
    facts=draws_and_grades,
    holds=_held,
)


@dg.asset(**EVALUATION.asset_args())
def evaluation(context: dg.AssetExecutionContext, foundry: Foundry) -> dg.MaterializeResult:
    variants = [VARIANTS[name] for name in foundry.settings.evaluation.variants]
    cast = Cast(foundry, versions(foundry))
    compared = compare(foundry, cast, variants, progress_of(context))
    written = store(foundry, compared)
    metadata = described(foundry, compared, compared.all_rows)
    return EVALUATION.describe(context, foundry, written, metadata)
