"""Filter, truncation and split on small chains, computed by hand."""

import pytest
from pydantic import ValidationError

from assets.core.duckdb_session import duckdb_session
from assets.curation.settings import CurationSettings, FilterSettings
from assets.curation.steps import build_steps, theta_of
from schemas import Row
from schemas.curation import STEPS
from schemas.trajectories import SCORES
from tests.assets.curation.curated_world import TEXT_ONLY, World, curate, records


def chain(*scores: float) -> list[tuple[float, bool]]:
    """A chain whose last attempt is accepted."""
    return [(score, index == len(scores) - 1) for index, score in enumerate(scores)]


def step_of(world: World, *scores: float, **settings) -> dict:
    world.add("s", chain(*scores))
    table, _ = build_steps(world.write(), CurationSettings(**settings))
    return records(table)[0]


def test_chains_are_dropped_by_the_rules(world):
    chains = {
        (9,): None,
        (3, 6, 9): None,
        (9, 8.5, 8): "degradation",  # high throughout, but no retry is as good as the first
        (8, 8, 8): None,
        (6, 6): None,
        (9, 5, 2): "negative_trend",
        (8.4, 8.3): "degradation",
        (7, 5, 7.5): None,
        (7, 6.9): "degradation",
        (2,): "persistent_low_quality",
        (1, 2, 3): "persistent_low_quality",
        (4, 5): None,
    }
    for number, scores in enumerate(chains):
        world.add(f"s{number:02d}", chain(*scores))
    steps = records(build_steps(world.write(), CurationSettings())[0])
    assert [step["drop_reason"] for step in steps] == [*chains.values()]
    assert [step["kept"] for step in steps] == [not reason for reason in chains.values()]


def test_rules_apply_in_the_order_of_the_settings(world):
    only = FilterSettings(rules=("persistent_low_quality", "negative_trend"))
    assert step_of(world, 4, 3, 1, filter=only)["drop_reason"] == "persistent_low_quality"
    with pytest.raises(ValidationError, match="no rule 'luck'; there are negative_trend, degr"):
        FilterSettings(rules=("luck",))


def test_a_chain_is_measured_up_to_its_first_best_attempt(world):
    step = step_of(world, 4, 8, 6, 8, 2, filter=FilterSettings(rules=()))
    assert step["kept"], "without rules every chain is"
    assert (step["iterations"], step["best_iteration"]) == (5, 1)
    assert (step["first_overall"], step["best_overall"]) == (4, 8)
    assert step["variance"] == 4  # of 4 and 8 alone


def test_a_chain_with_an_unscored_attempt_is_dropped(world):
    world.add("s", chain(5, 6, 9))
    home = world.write()
    scores: list[Row] = world.rows["scores"]
    home.lake.write(SCORES, scores[:2], "toy-0000")
    table, report = build_steps(home, CurationSettings())
    assert records(table)[0]["drop_reason"] == "unscored"
    assert report.dropped == {"unscored": 1}


def test_theta_is_set_or_chosen_for_two_sft_steps_to_one_rl_step(world):
    for number, rise in enumerate([0, 1, 2, 3, 4, 5]):
        world.add(f"s{number}", chain(9 - rise, 9))
    table, report = build_steps(world.write(), CurationSettings())
    splits = {row["prompt_id"]: row["split"] for row in records(table)}
    assert splits == dict.fromkeys(("s0", "s1", "s2", "s3"), "sft") | {"s4": "rl", "s5": "rl"}
    assert (report.splits, report.theta) == ({"sft": 4, "rl": 2}, 2.25)  # (3 / 2) squared
    curate(world.home, CurationSettings(), STEPS)
    assert theta_of(duckdb_session(world.home), CurationSettings().split) == 2.25
    _, report = build_steps(world.home, CurationSettings(split={"theta": 0.5}))
    assert report.splits == {"sft": 2, "rl": 4}


def test_a_prompts_steps_go_to_one_split_or_each_by_its_own_variance(world):
    world.add("calm", chain(9), chain(9), TEXT_ONLY, chain(8, 9))
    world.add("wild", chain(9), chain(1, 9), chain(1, 9))
    world.add("heldout", chain(1, 9), split="heldout")
    table, _ = build_steps(world.write(), CurationSettings(split={"theta": 2}))
    sides = {(row["prompt_id"], row["split"]) for row in records(table)}
    assert sides == {("calm", "sft"), ("wild", "rl"), ("heldout", None)}
    settings = CurationSettings(split={"theta": 2, "unit": "step"})
    table, report = build_steps(world.home, settings)
    by_step = [(r["prompt_id"], r["step_number"], r["split"]) for r in records(table)]
    assert by_step == [
        *(("calm", number, "sft") for number in (1, 2, 4)),
        ("heldout", 1, None),
        *(("wild", number, "rl" if number > 1 else "sft") for number in (1, 2, 3)),
    ]
    assert report.unit == "step" and len(report.unit_variance) == 6


def test_with_unit_step_theta_is_chosen_over_steps(world):
    world.add("one", *[chain(9 - rise, 9) for rise in range(6)])
    settings = CurationSettings(split={"unit": "step"})
    table, report = build_steps(world.write(), settings)
    assert [row["split"] for row in records(table)] == ["sft"] * 4 + ["rl"] * 2
    assert report.theta == 2.25
    curate(world.home, settings, STEPS)
    assert theta_of(duckdb_session(world.home), settings.split) == 2.25


def test_held_out_prompts_have_no_split_and_do_not_change_theta(world):
    world.add("train", chain(9))
    world.add("heldout", chain(1, 9), split="heldout")
    world.add("unseen", chain(1, 9), split="heldout_category")
    table, report = build_steps(world.write(), CurationSettings())
    assert [(r["prompt_id"], r["kept"], r["split"]) for r in records(table)] == [
        ("heldout", True, None),
        ("train", True, "sft"),
        ("unseen", True, None),
    ]
    assert report.theta == 0
    assert len(report.unit_variance) == 1


def test_report_counts_steps_by_outcome(world):
    world.add("a", chain(9), chain(3, 9), chain(1))
    world.add("b", chain(9, 3))
    _, report = build_steps(world.write(), CurationSettings())
    assert report.splits == {"sft": 2}
    assert report.dropped == {"negative_trend": 1, "persistent_low_quality": 1}
    scores = [(row["iteration"], row["attempts"], row["mean"]) for row in report.scores]
    assert scores == [(0, 4, 5.5), (1, 2, 6.0)]
    assert len(report.variance) == 2


def test_an_empty_lake_gives_empty_steps(world):
    table, report = build_steps(world.home, CurationSettings())
    assert table.schema.names == STEPS.arrow_schema.names and table.read_all().num_rows == 0
    assert (report.splits, report.dropped, report.theta) == ({}, {}, None)
