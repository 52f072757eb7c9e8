"""The asset `promotion` over registered checkpoints and stored evaluations, without training."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import orjson
import pytest

from assets.checkpoints.recipes import critic_sft, planner_sft
from assets.core.foundry import FoundryResource
from assets.evaluation.assets import evaluation_variants
from assets.evaluation.promotion import METRICS
from assets.evaluation.systems import (
    System,
    candidate_systems,
    newest_system,
    reference_systems,
    system_in_use,
)
from assets.evaluation.variants import NEW_CRITIC, NEW_PLANNER
from inference.backends.checkpoint.manifest import RECORD, promoted
from schemas.training import CRITIC, EVALUATIONS, PLANNER, RL_PLANNER, SFT_CRITIC, EvaluationRow
from tests.helpers.checkpoint_rows import checkpoint_row
from tests.helpers.ticks import materialize_alone
from training.registry import CheckpointRegistry

NONE: Mapping[str, str] = MappingProxyType({})


@dataclass
class Registered:
    """A home with registered checkpoints and stored values."""

    foundry: FoundryResource

    @property
    def registry(self) -> CheckpointRegistry:
        return CheckpointRegistry(self.foundry.home)

    def register(self, *systems: System, parents: Mapping[str, str] = NONE) -> None:
        """With the parents of some, by name."""
        for system in systems:
            for name, version in system.versions.items():
                folder = self.registry.folder(name, version)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / RECORD).write_bytes(orjson.dumps({"files": []}))
                row = checkpoint_row(name, version, folder)
                self.registry.register(row.model_copy(update={"parent": parents.get(name)}))

    def store(self, variant: str, system: System, values: dict[str, float]) -> None:
        """The same value of a metric on each of twenty items."""
        rows = [
            EvaluationRow(
                benchmark="sketchbook-heldout-dev",
                variant=variant,
                item_id=f"item-{number}",
                metric=metric,
                value=value,
                planner=f"checkpoint/{system.planner}",
                critic=f"checkpoint/{system.critic}",
            )
            for metric, value in values.items()
            for number in range(20)
        ]
        self.foundry.home.lake.write(EVALUATIONS, rows, variant)

    def promote(self) -> dict[str, str]:
        """Materialize promotion; returns the tables that it shows."""
        metadata, _ = materialize_alone(self.foundry, "promotion", raise_on_error=False)
        return {name: str(value) for name, value in metadata.items()}

    def in_use(self) -> System | None:
        return system_in_use(self.foundry.home)


@pytest.fixture
def registered(tmp_path):
    def make(planner_rl: object = None) -> Registered:
        training = {"promote_at_least": {}, "planner_rl": planner_rl}
        sections = {"training": training, "evaluation": {}, "rounds": None, "size_changes": {}}
        root = str(tmp_path / "lake")
        return Registered(FoundryResource(root=root, sections=json.dumps(sections)))

    return make


ALL_ONE = dict.fromkeys(METRICS, 1.0)
OLD = System(f"{PLANNER}@planner0", f"{CRITIC}@critic0")


def with_one_in_use(home: Registered) -> tuple[System, System, System]:
    """The newest system, and those with one new version, beside `OLD`, which is in use."""
    newest = newest_system(home.foundry)
    home.register(OLD, newest)
    home.registry.promote_system(OLD.versions, "first", dict.fromkeys(METRICS, 1.0))
    home.store("promoted", OLD, ALL_ONE)
    return newest, System(OLD.planner, newest.critic), System(newest.planner, OLD.critic)


def test_the_first_evaluated_system_is_promoted_and_a_planner_without_any_critic_waits(registered):
    home = registered()
    newest = newest_system(home.foundry)
    home.register(newest)
    record = home.registry.folder(CRITIC, newest.versions[CRITIC]) / RECORD
    record.rename(record.with_suffix(".away"))
    assert "no trained agent of the other role" in home.promote()["decisions"]
    assert home.in_use() is None
    record.with_suffix(".away").rename(record)
    home.store("full_rl", newest, ALL_ONE)
    shown = home.promote()
    assert home.in_use() == newest
    assert shown["decisions"].count("the first of its name") == 2
    assert home.registry.history(PLANNER)[-1].means["final_success"] == 1.0
    assert home.promote()["decisions"].count("in use already") == 2


def test_where_something_is_in_use_every_choice_is_evaluated(registered):
    home = registered()
    newest, new_critic, new_planner = with_one_in_use(home)
    assert candidate_systems(home.foundry) == {
        "full_rl": newest,
        NEW_CRITIC: new_critic,
        NEW_PLANNER: new_planner,
    }
    assert reference_systems(home.foundry) == {"promoted": OLD}
    variants = {each.name: each for each in evaluation_variants(home.foundry)}
    assert variants[NEW_CRITIC].planner == OLD.planner
    assert variants[NEW_CRITIC].critic == newest.critic
    assert {"full_rl", NEW_PLANNER, "promoted"} <= set(variants)


def test_a_system_that_was_not_evaluated_is_never_put_together(registered):
    """The newest two are worse together, and the new critic alone has no values."""
    home = registered()
    newest, _, new_planner = with_one_in_use(home)
    home.store("full_rl", newest, ALL_ONE | {"final_success": 0.0})
    home.store(NEW_PLANNER, new_planner, ALL_ONE | {"plan_valid": 0.0})
    shown = home.promote()
    assert home.in_use() == OLD
    assert "new_critic: not evaluated" in shown["decisions"]
    assert home.registry.find(PLANNER, newest.versions[PLANNER]).status == "rejected"
    assert home.registry.find(CRITIC, newest.versions[CRITIC]).status == "candidate"


def test_the_critic_alone_is_promoted_and_the_table_says_why(registered):
    home = registered()
    newest, new_critic, new_planner = with_one_in_use(home)
    home.store("full_rl", newest, ALL_ONE | {"plan_valid": 0.0})
    home.store(NEW_PLANNER, new_planner, ALL_ONE | {"plan_valid": 0.0})
    home.store(NEW_CRITIC, new_critic, ALL_ONE)
    shown = home.promote()
    assert home.in_use() == new_critic
    (row,) = (
        line
        for line in shown["comparisons"].splitlines()
        if "full_rl" in line and "plan_valid" in line
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "full_rl",
        "plan_valid",
        "0.000",
        str(OLD),
        "-1.000",
        "[-1.000, -1.000]",
        "20",
        "0.1",
        "worse",
    ]


def supervised(home: Registered) -> System:
    """The newest planner, with the newest supervised critic."""
    critic = critic_sft(home.foundry).version
    return System(newest_system(home.foundry).planner, f"{SFT_CRITIC}@{critic}")


def test_a_reinforced_critic_has_to_be_better_than_the_one_it_started_from(registered):
    """Until then the supervised one serves."""
    home = registered()
    newest, with_parent = newest_system(home.foundry), supervised(home)
    home.register(with_parent)
    home.register(newest, parents={CRITIC: with_parent.critic.replace("@", "/")})
    home.store("full_rl", newest, ALL_ONE)
    assert f"not compared with {SFT_CRITIC}" in home.promote()["decisions"]
    home.store("full_sft", with_parent, ALL_ONE)
    assert f"no better than {SFT_CRITIC}" in home.promote()["decisions"]
    assert home.in_use() == with_parent
    assert promoted(home.foundry.home)["critic"] == with_parent.critic
    worse = ALL_ONE | {"final_success": 0.9}
    for variant in ("full_sft", "promoted"):
        home.store(variant, with_parent, worse)
    home.promote()
    assert home.in_use() == newest
    assert promoted(home.foundry.home)["critic"] == newest.critic


def test_a_reinforced_critic_in_use_does_not_hold_a_new_planner_back(registered):
    home = registered()
    newest, with_parent = newest_system(home.foundry), supervised(home)
    older = System(OLD.planner, newest.critic)
    home.register(with_parent, older)
    home.register(newest, parents={CRITIC: with_parent.critic.replace("@", "/")})
    home.registry.promote_system(older.versions, "first", dict.fromkeys(METRICS, 1.0))
    for variant, system in {"full_sft": with_parent, "promoted": older, "full_rl": newest}.items():
        home.store(variant, system, ALL_ONE)
    home.promote()
    assert home.in_use() == newest


def test_a_reinforced_critic_that_is_worse_is_rejected_whatever_it_gained(registered):
    home = registered()
    newest, with_parent = newest_system(home.foundry), supervised(home)
    home.register(with_parent)
    home.register(newest, parents={CRITIC: with_parent.critic.replace("@", "/")})
    home.registry.promote_system(with_parent.versions, "first", dict.fromkeys(METRICS, 1.0))
    for variant in ("full_sft", "promoted"):
        home.store(variant, with_parent, ALL_ONE)
    home.store("full_rl", newest, ALL_ONE | {"final_success": 0.0})
    home.promote()
    assert home.registry.find(CRITIC, newest.versions[CRITIC]).status == "rejected"
    assert home.in_use() == with_parent


@pytest.mark.parametrize(
    ("both_rl", "planner_rl", "full_rl", "promoted"),
    [
        (1.0, 0.95, 0.9, "both_rl"),
        (0.9, 0.8, 0.9, "full_rl"),  # the planner gains nothing
        (0.9, 0.9, 0.8, "planner_rl"),  # the critic gains nothing
    ],
)
def test_a_reinforced_planner_has_to_be_better_as_well(
    registered, both_rl, planner_rl, full_rl, promoted
):
    home = registered(planner_rl={})
    newest, critic = newest_system(home.foundry), supervised(home).critic
    planner = f"{PLANNER}@{planner_sft(home.foundry).version}"
    assert newest.planner.startswith(f"{RL_PLANNER}@")
    systems = {
        "both_rl": (newest, both_rl),
        "planner_rl": (System(newest.planner, critic), planner_rl),
        "full_rl": (System(planner, newest.critic), full_rl),
        "full_sft": (System(planner, critic), 0.8),
    }
    before = {RL_PLANNER: planner.replace("@", "/"), CRITIC: critic.replace("@", "/")}
    home.register(*(system for system, _ in systems.values()), parents=before)
    assert candidate_systems(home.foundry) == {name: each for name, (each, _) in systems.items()}
    assert systems.keys() <= {each.name for each in evaluation_variants(home.foundry)}
    for name, (system, success) in systems.items():
        home.store(name, system, ALL_ONE | {"final_success": success})
    home.promote()
    assert home.in_use() == systems[promoted][0]


def test_what_is_not_trained_yet_waits_and_the_other_agent_moves_alone(registered):
    """As in job `retrain_planner` while new rows for the critic wait for their training."""
    home = registered()
    newest = newest_system(home.foundry)
    home.register(OLD, System(newest.planner, OLD.critic))
    home.registry.promote_system(OLD.versions, "first", dict.fromkeys(METRICS, 1.0))
    new_planner = System(newest.planner, OLD.critic)
    assert candidate_systems(home.foundry) == {"full_rl": new_planner}
    evaluated = {each.name for each in evaluation_variants(home.foundry)}
    assert evaluated == {"generator_only", "planner_sft", "full_sft", "full_rl", "promoted"}
    home.store("promoted", OLD, ALL_ONE)
    home.store("full_rl", new_planner, ALL_ONE)
    shown = home.promote()
    assert home.in_use() == new_planner
    assert "in use already" in shown["decisions"]


def test_the_best_ever_promoted_is_compared_as_long_as_it_is_good(registered):
    home = registered()
    with_one_in_use(home)
    later = System(f"{PLANNER}@planner1", f"{CRITIC}@critic1")
    home.register(later)
    home.registry.promote_system(later.versions, "later", dict.fromkeys(METRICS, 0.9))
    assert reference_systems(home.foundry) == {"promoted": later, "best_1": OLD}
    better = System(f"{PLANNER}@planner2", f"{CRITIC}@critic2")
    home.register(better)
    home.registry.promote_system(better.versions, "better", dict.fromkeys(METRICS, 1.5))
    assert reference_systems(home.foundry) == {"promoted": better}
    for name in better.versions:
        home.registry.roll_back(name, "bad in practice")
    assert reference_systems(home.foundry) == {"promoted": later, "best_1": OLD}
