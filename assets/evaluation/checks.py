"""Checks of an evaluation, which block promotion."""

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from schemas.prompts import PROMPTS
from schemas.training import EVALUATIONS
from schemas.trajectories import ATTEMPTS

from ..core.checks import Rule, blocking_checks
from ..core.foundry import FoundryResource
from ..core.integrity import Violations
from .assets import ABLATION, EVALUATION, ablation_variants

_BINARY_METRICS = (
    "plan_valid",
    "plan_correct",
    "verdict_accuracy_true",
    "verdict_accuracy_false",
    "final_success",
)

# Names of the variants that an asset evaluates.
VariantNames = Callable[[FoundryResource], list[str]]


def _unmeasured_variants(names: VariantNames, foundry: FoundryResource, _: object) -> Violations:
    lake = foundry.home.lake
    if not _held_out_prompts(foundry):
        return []
    return [{"variant": name} for name in names(foundry) if not lake.rows(EVALUATIONS, name)]


def _impossible_values(names: VariantNames, foundry: FoundryResource, _: object) -> Violations:
    rows = foundry.home.lake.read(EVALUATIONS, names(foundry))
    return [row for row in rows.to_pylist() if not _in_range(row["metric"], row["value"])]


def _training_items(names: VariantNames, foundry: FoundryResource, _: object) -> Violations:
    lake, prompts = foundry.home.lake, _held_out_prompts(foundry)
    held_out = pc.field("prompt_id").isin(pa.array(sorted(prompts), pa.string()))
    attempts = lake.read(ATTEMPTS, columns=["trajectory_id", "prompt_id"]).filter(held_out)
    # An item is a prompt or an attempt, whose id begins with its trajectory's.
    allowed = prompts | set(attempts["trajectory_id"].to_pylist())
    items = lake.read(EVALUATIONS, names(foundry), ["variant", "item_id"]).to_pylist()
    return [row for row in items if row["item_id"].split("/")[0] not in allowed]


def _held_out_prompts(foundry: FoundryResource) -> set[str]:
    where = pc.field("split") != "train"
    prompts = foundry.home.lake.read(PROMPTS, columns=["prompt_id"], where=where)
    return set(prompts["prompt_id"].to_pylist())


def _in_range(metric: str, value: float) -> bool:
    if metric in _BINARY_METRICS:
        return value in (0.0, 1.0)
    if metric == "step_reward":
        return -1 <= value <= 1
    return abs(value) <= 10 if metric == "refined_gain" else value >= 0


def _rules(names: VariantNames) -> dict[str, tuple[str, Rule]]:
    return {
        "variants_measured": ("Every variant has values", partial(_unmeasured_variants, names)),
        "values_possible": (
            "Values are in the range of their metric",
            partial(_impossible_values, names),
        ),
        "held_out_only": (
            "No item belongs to a prompt of split train",
            partial(_training_items, names),
        ),
    }


evaluation_checks = blocking_checks(
    EVALUATION, _rules(lambda foundry: list(foundry.settings.evaluation.variants))
)
ablation_checks = blocking_checks(
    ABLATION, _rules(lambda foundry: [variant.name for variant in ablation_variants(foundry)])
)
