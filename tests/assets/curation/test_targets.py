"""What the bank takes to meet targets: shards and USD as intervals, and when they will not do."""

from dataclasses import replace

import pytest
import yaml

from assets.core.foundry import FoundryResource
from assets.core.profile import load_profile
from assets.curation.sources import round_partition
from assets.curation.targets import Growth, SetProgress, own_target
from assets.prompts.rounds import record_plan
from inference.calls.forecast import Bounds
from schemas import FoundryError
from schemas.curation import IMPORTS, PLANNER_SFT
from schemas.rounds import ROUND_ROWS, RoundTrainingRow
from tests.assets.curation.curated_world import imported_row, round_plan

EVEN = (20, 22, 18, 21, 19)  # rows of five shards


def progress(target, by_shard=EVEN, **elsewhere):
    return SetProgress("critic_sft", target, by_shard, {"art": sum(by_shard)}, elsewhere)


def growth(target, by_shard=EVEN, waiting=0, usd=None, spent=0.0, budget=None):
    found = progress(target, by_shard)
    made = len(by_shard) + waiting
    return Growth((found,), made, waiting, found.shards_to_come, usd, spent, budget)


def test_shards_to_come_enclose_the_mean():
    low, expected, high = progress(1100).shards_to_come
    assert expected == 50
    assert 40 < low < 50 < high < 60


def test_rows_of_imports_and_rounds_are_counted():
    assert progress(200, imports=60, rounds=40).is_met
    assert progress(300, imports=60).shards_to_come.expected == 7


def test_few_shards_give_no_forecast():
    assert progress(300, EVEN[:4]).shards_to_come is None
    few = growth(300, EVEN[:4])
    assert few.batch(most=100) == 1
    assert few.problem(most=100) is None
    assert "has no more" in few.problem(most=4)


def test_a_batch_is_no_larger_than_what_is_surely_needed():
    found = growth(1100)
    assert found.batch(most=1000) == found.to_come.low
    assert found.batch(most=15) == 10
    assert growth(101).batch(most=1000) == 1


def test_a_bank_that_ends_too_soon_is_said_with_what_would_do():
    found = growth(1100)
    assert found.problem(most=5 + int(found.to_come.low)) is None
    said = found.problem(most=30)
    assert "the bank ends after 30 shards, of which 5 are made" in said
    assert f"`sizes` with {5 + found.to_come.high:.0f} shards" in said
    reachable = int(said.partition("targets of critic_sft ")[2].partition(";")[0])
    assert 550 < reachable < 600


def test_a_set_that_no_shard_has_rows_of_is_never_met():
    said = growth(10, (0, 0, 0, 0, 0)).problem(most=400)
    assert "at least 1,000,000 more" in said and "targets of critic_sft 0" in said


def test_a_budget_that_is_too_small_stops_before_it_is_spent():
    found = growth(1100, usd=Bounds(4.0, 5.0, 6.0), spent=0.5, budget=5.6)
    assert found.problem(most=1000) is None
    said = replace(found, budget=5.4).problem(most=1000)
    assert "of the budget of 5.40 USD 4.90 are not spent" in said
    assert "4.00 to 6.00 USD more: a budget of 6.50 USD would do" in said


@pytest.mark.parametrize(("by_shard", "target"), [((), 10), (EVEN, 140)])
def test_no_shards_are_made_while_enough_wait_for_reviews(by_shard, target):
    assert "wait for reviews" in growth(target, by_shard, waiting=6).problem(most=100)


@pytest.fixture
def profile(tmp_path):
    def write(**values):
        path = tmp_path / "targets.yaml"
        path.write_text(yaml.safe_dump({"base": "sketch", **values}))
        return str(path)

    return write


def round_row(number, origin, weight):
    empty = dict.fromkeys(("prompt_id", "origin_prompt", "rewritten_prompt", "evaluation"))
    empty |= {"messages": [], "images": [], "round": 1, "data_set": "planner_sft"}
    return RoundTrainingRow(row_id=f"row-{number}", origin=origin, weight=weight, **empty)


def test_rows_that_a_round_made_are_counted_and_those_that_it_repeats_are_not(home, profile):
    record_plan(home, round_plan("sketchbook", 120))
    rows = [round_row(0, "new", 1), round_row(1, "failure", 1), round_row(2, "replay", 3)]
    home.lake.write(ROUND_ROWS, rows, round_partition(1, PLANNER_SFT))
    foundry = FoundryResource(profile=profile(targets={"planner_sft": 10}), root=str(home.root))
    assert own_target(foundry, "planner_sft") == 8
    assert own_target(foundry, "critic_sft") is None


def test_imports_alone_may_not_be_more_than_a_target(home, profile):
    mix = {"planner_sft": {"ours": 1, "theirs": 2}}
    path = profile(targets={"planner_sft": 5}, curation={"exports": {"mix": mix}})
    rows = [imported_row(number) for number in range(3)]
    home.lake.write(IMPORTS, rows, "theirs")
    with pytest.raises(FoundryError, match=r"5 rows, but imports and rounds alone have 6"):
        own_target(FoundryResource(profile=path, root=str(home.root)), "planner_sft")


def test_a_target_counts_every_row_once(profile):
    mix = {"planner_sft": {"ours": 0.5, "theirs": 1}}
    path = profile(targets={"planner_sft": 5}, curation={"exports": {"mix": mix}})
    with pytest.raises(FoundryError, match=r"targets.planner_sft: .* has to have ours: 1"):
        load_profile(path)


def test_a_profile_may_have_none_of_the_targets_of_its_base(profile, tmp_path):
    base = profile(targets={"planner_sft": 5})
    path = tmp_path / "without.yaml"
    path.write_text(yaml.safe_dump({"base": base, "targets": None}))
    assert load_profile(str(path)).targets == {}
    foundry = FoundryResource(profile=base, root=str(tmp_path / "home"))
    assert foundry.chosen_size == "full", "the largest size, where none is named"
