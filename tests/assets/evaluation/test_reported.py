"""Test numbers that were seen, and settings that changed after that."""

import json

import dagster as dg
import pytest

from assets.checkpoints.recipes import LINEAGE
from assets.core.foundry import FoundryResource
from assets.evaluation.assets import record_reported
from assets.evaluation.assets import test_items_unseen as unseen_check
from schemas.curation import CRITIC_RL as CRITIC_RL_ROWS
from schemas.training import CRITIC, PLANNER, REPORTED_RECIPES, EvaluationRow


@pytest.fixture
def foundry(tmp_path):
    """The resource, with settings of the critic's GRPO, and of the same at the size `demo`."""

    def make(steps: int, at_demo: dict[str, object] | None = None) -> FoundryResource:
        sections = {"training": {"critic_rl": {"max_steps": steps}}, "rounds": None}
        sections["size_changes"] = {"demo": at_demo} if at_demo else {}
        root = str(tmp_path / "lake")
        return FoundryResource(root=root, sections=json.dumps(sections))

    return make


def report(foundry: FoundryResource, benchmark: str = "sketchbook-heldout-test") -> int:
    """Numbers of the newest planner and critic on a benchmark."""
    planner, critic = (LINEAGE[name](foundry).version for name in (PLANNER, CRITIC))
    row = EvaluationRow(
        benchmark=benchmark,
        variant="full_rl",
        item_id="item",
        metric="final_success",
        value=1.0,
        planner=f"checkpoint/{PLANNER}@{planner}",
        critic=f"checkpoint/{CRITIC}@{critic}-afb2ea1d",  # at a server
    )
    return record_reported(foundry, [row])


def check(foundry: FoundryResource) -> dg.AssetCheckResult:
    return unseen_check(foundry=foundry)


def test_versions_with_test_numbers_are_stored_once(foundry):
    home = foundry(3)
    assert report(home, "sketchbook-heldout-dev") == 0
    assert report(home) == 2
    before = home.rows(REPORTED_RECIPES)
    assert {row.name for row in before} == {PLANNER, CRITIC}
    assert report(home) == 2 and home.rows(REPORTED_RECIPES) == before


def test_changed_settings_after_test_numbers_are_a_warning(foundry):
    assert check(foundry(3)).passed
    report(foundry(3))
    assert check(foundry(3)).passed
    found = check(foundry(4))
    assert not found.passed and found.severity == dg.AssetCheckSeverity.WARN
    changes = found.metadata["changes"].value
    assert CRITIC in changes and PLANNER not in changes


def test_more_rows_are_not_a_change_of_settings(foundry):
    home = foundry(3)
    report(home)
    version = LINEAGE[CRITIC](home).version
    home.home.lake.write(CRITIC_RL_ROWS, [], "all")
    assert LINEAGE[CRITIC](home).version != version
    assert check(home).passed


def test_numbers_of_a_reduced_size_are_no_report(foundry):
    small = foundry(3, {"training": {"critic_rl": {"max_steps": 2}}})
    assert report(small) == 0 and check(small).passed
