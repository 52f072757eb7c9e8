"""Checks of an evaluation: those of its values block promotion, that of settings warns."""

from collections.abc import Callable

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from schemas.prompts import PROMPTS
from schemas.training import EVALUATIONS
from schemas.trajectories import ATTEMPTS

from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from ..core.integrity import Violations
from ..core.metadata import table_metadata
from ..core.node import Node
from .assets import ABLATION, EVALUATION, ablation_variants, evaluation, evaluation_variants
from .metrics import METRICS
from .reported import changed_since_reported


def _evaluation_checks(
    declared: Node, names: Callable[[FoundryResource], list[str]]
) -> dg.AssetChecksDefinition:
    """The checks of an asset that writes the partitions `names`."""

    def unmeasured_variants(foundry: FoundryResource, _: object) -> Violations:
        if not _held_out_prompts(foundry):
            return []
        lake = foundry.home.lake
        return [{"variant": name} for name in names(foundry) if not lake.rows(EVALUATIONS, name)]

    def impossible_values(foundry: FoundryResource, _: object) -> Violations:
        rows = foundry.home.lake.read(EVALUATIONS, names(foundry)).to_pylist()
        return [row for row in rows if not _in_range(row["metric"], row["value"])]

    def training_items(foundry: FoundryResource, _: object) -> Violations:
        lake, prompts = foundry.home.lake, _held_out_prompts(foundry)
        held_out = pc.field("prompt_id").isin(pa.array(sorted(prompts), pa.string()))
        attempts = lake.read(ATTEMPTS, columns=["trajectory_id"], where=held_out)
        # An item is a prompt or an attempt, whose id begins with its trajectory's.
        allowed = prompts | set(attempts["trajectory_id"].to_pylist())
        items = lake.read(EVALUATIONS, names(foundry), ["variant", "item_id"]).to_pylist()
        return [row for row in items if row["item_id"].split("/")[0] not in allowed]

    return blocking_checks(
        declared,
        variants_measured=("Every variant has values", unmeasured_variants),
        values_possible=("Values are in the range of their metric", impossible_values),
        held_out_only=("No item belongs to a prompt of split train", training_items),
    )


def _held_out_prompts(foundry: FoundryResource) -> set[str]:
    where = pc.field("split") != "train"
    prompts = foundry.home.lake.read(PROMPTS, columns=["prompt_id"], where=where)
    return set(prompts["prompt_id"].to_pylist())


def _in_range(metric: str, value: float) -> bool:
    return metric in METRICS and METRICS[metric].allows(value)


evaluation_checks = _evaluation_checks(
    EVALUATION, lambda foundry: [each.partition for each in evaluation_variants(foundry)]
)


def _ablation_partitions(foundry: FoundryResource) -> list[str]:
    """None where variants are compared on a benchmark, whose tables have their own checks."""
    if foundry.settings.evaluation.ablation.benchmark:
        return []
    return [each.partition for each in ablation_variants(foundry)]


ablation_checks = _evaluation_checks(ABLATION, _ablation_partitions)


@dg.asset_check(
    asset=evaluation,
    name="test_items_unseen",
    description="No recipe has other settings than one whose test numbers were reported before",
)
def test_items_unseen(foundry: FoundryResource) -> dg.AssetCheckResult:
    """A warning: whoever saw test numbers and then changed settings may have chosen by them."""
    changes = changed_since_reported(foundry)
    hint = "choose settings by the dev benchmark, and say so where these test numbers are reported"
    return dg.AssetCheckResult(
        passed=not changes,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"settings changed after test numbers were seen: {hint}" if changes else None,
        metadata={"changes": table_metadata(changes)},
    )
