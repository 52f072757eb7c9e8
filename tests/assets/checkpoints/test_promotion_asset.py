"""The asset `promotion` over registered checkpoints and stored evaluations, without training."""

import dagster as dg
import orjson
import pytest

from assets.checkpoints import recipes
from assets.core.foundry import FoundryResource
from assets.core.profile import load_profile
from dagster_project.definitions import ASSETS
from schemas.training import EVALUATIONS, EvaluationRow
from tests.assets.prompts.tiny_pack import tiny_pack
from tests.helpers.checkpoint_rows import checkpoint_row
from training.registry import RECORD, CheckpointRegistry

GRADED = ("plan_valid", "plan_correct", "final_success")
UNGRADED = ("verdict_accuracy_true", "verdict_accuracy_false", "step_reward", "generator_calls")
PROFILE = """
name: tiny
description: Checkpoints without training
roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
sizes: {demo: 1}
training: {promote_at_least: {}}
"""


@pytest.fixture
def promote(tmp_path):
    """Register a planner and a critic, store values of `metrics` and materialize promotion."""

    def run(pack: str, metrics: tuple[str, ...]) -> tuple[dict[str, str], str]:
        profile = tmp_path / "tiny.yaml"
        profile.write_text(f"{PROFILE}pack: {pack}\n")
        load_profile.cache_clear()
        foundry = FoundryResource(profile=str(profile), root=str(tmp_path / "lake"))
        registry = CheckpointRegistry(foundry.home)
        newest = [recipes.planner_sft(foundry), recipes.critic_rl(foundry)]
        for recipe in newest:
            folder = registry.folder(recipe.name, recipe.version)
            folder.mkdir(parents=True)
            (folder / RECORD).write_bytes(orjson.dumps({"files": []}))
            registry.register(checkpoint_row(recipe.name, recipe.version, folder))
        planner, critic = (f"checkpoint:{recipe.name}@{recipe.version}" for recipe in newest)
        rows = [
            EvaluationRow(
                benchmark=f"{foundry.settings.pack.rpartition('/')[2]}-heldout",
                variant="full_rl",
                item_id="item",
                metric=metric,
                value=1.0,
                planner=planner,
                critic=critic,
            )
            for metric in metrics
        ]
        foundry.home.lake.write(EVALUATIONS, rows, "full_rl")
        result = dg.materialize(ASSETS, selection=["promotion"], resources={"foundry": foundry})
        (event,) = result.asset_materializations_for_node("promotion")
        return {row.name: row.status for row in registry.rows()}, event.metadata["decisions"].value

    return run


def test_evaluated_checkpoints_are_promoted(promote):
    statuses, decisions = promote("sketchbook", GRADED + UNGRADED)
    assert set(statuses.values()) == {"promoted"}
    assert decisions.count("the first of its name") == 2


def test_without_a_grader_nothing_is_promoted_and_the_reason_is_shown(promote, tmp_path):
    tiny_pack(tmp_path)
    statuses, decisions = promote(str(tmp_path / "zoo"), UNGRADED)
    assert set(statuses.values()) == {"candidate"}
    assert f"not evaluated: no values of {', '.join(GRADED)}" in decisions
    assert "not evaluated: no values of final_success" in decisions
