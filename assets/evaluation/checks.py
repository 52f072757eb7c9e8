"""What must hold of an evaluation before anything is promoted by it."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from schemas.prompts import PROMPTS
from schemas.training import EVALUATIONS
from schemas.trajectories import ATTEMPTS

from ..core import integrity
from ..core.checks import Rule, blocking_checks
from ..core.foundry import FoundryResource
from .ablation import ABLATION, others
from .assets import EVALUATION

_YES_OR_NO = (
    "plan_valid",
    "plan_correct",
    "verdict_accuracy_true",
    "verdict_accuracy_false",
    "final_success",
)

Names = Callable[[FoundryResource], list[str]]


def _every_variant_measured(names: Names) -> Rule:
    def rule(foundry: FoundryResource, _shard: str | None) -> integrity.Broken:
        lake = foundry.home.lake
        if not _held_out(foundry):
            return []
        return [{"variant": name} for name in names(foundry) if not lake.rows(EVALUATIONS, name)]

    return rule


def _values_in_range(names: Names) -> Rule:
    """Yes is 1, no is 0; a step reward lies between -1 and 1, calls and gains where they can."""

    def rule(foundry: FoundryResource, _shard: str | None) -> integrity.Broken:
        rows = foundry.home.lake.read(EVALUATIONS, names(foundry))
        return [row for row in rows.to_pylist() if not _possible(row["metric"], row["value"])]

    return rule


def _only_held_out(names: Names) -> Rule:
    def rule(foundry: FoundryResource, _shard: str | None) -> integrity.Broken:
        lake, ours = foundry.home.lake, _held_out(foundry)
        attempts = lake.read(ATTEMPTS, columns=["trajectory_id", "prompt_id"])
        attempts = attempts.filter(pc.field("prompt_id").isin(pa.array(sorted(ours), pa.string())))
        stories = ours | set(attempts["trajectory_id"].to_pylist())
        items = lake.read(EVALUATIONS, names(foundry), ["variant", "item_id"]).to_pylist()
        return [row for row in items if row["item_id"].split("/")[0] not in stories]

    return rule


def _held_out(foundry: FoundryResource) -> set[str]:
    where = pc.field("split") != "train"
    prompts = foundry.home.lake.read(PROMPTS, columns=["prompt_id"], where=where)
    return set(prompts["prompt_id"].to_pylist())


def _possible(metric: str, value: float) -> bool:
    if metric in _YES_OR_NO:
        return value in (0.0, 1.0)
    if metric == "step_reward":
        return -1 <= value <= 1
    return abs(value) <= 10 if metric == "refined_gain" else value >= 0


def _rules(names: Names) -> dict[str, tuple[str, Rule]]:
    return {
        "variants_measured": ("Every variant has values", _every_variant_measured(names)),
        "values_possible": ("Values are such as their metrics can have", _values_in_range(names)),
        "held_out_only": ("No item is of a prompt that was trained on", _only_held_out(names)),
    }


evaluation_checks = blocking_checks(
    EVALUATION, _rules(lambda foundry: list(foundry.settings.evaluation.variants))
)
ablation_checks = blocking_checks(
    ABLATION, _rules(lambda foundry: [variant.name for variant in others(foundry)])
)
