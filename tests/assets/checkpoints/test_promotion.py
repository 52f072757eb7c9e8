"""Who is put in use: decided from intervals of differences, item by item."""

import pytest

from assets.checkpoints.promotion import BENCHMARK, decide, values_of
from schemas.training import EvaluationRow

NAME = "critic_rl_checkpoint"


def values(share, items=100, metric="verdict_accuracy_false"):
    """A metric that is 1 for a share of the items."""
    return {metric: {f"item-{i}": float(i < share * items) for i in range(items)}}


def decided(ours, theirs, version="new", in_use="old", rejected=False, least=None):
    return decide(NAME, version, in_use, rejected, ours, theirs, least or {})


def test_the_first_of_its_name_is_promoted():
    assert decided(values(0.1), {}, in_use=None).outcome == "promoted"


@pytest.mark.parametrize("in_use", [None, "old"])
def test_what_is_not_good_enough_stays_a_candidate(in_use):
    least = {"verdict_accuracy_false": 0.5, "plan_valid": 0.5}  # of the planner: another's business
    decision = decided(values(0.1), values(0.1), in_use=in_use, least=least)
    assert decision.outcome == "kept" and "verdict_accuracy_false 0.10" in decision.why
    assert decided(values(0.5), values(0.1), in_use=in_use, least=least).outcome == "promoted"


@pytest.mark.parametrize("share", [0.95, 0.9, 0.89])
def test_what_is_better_equal_or_not_surely_worse_is_promoted(share):
    decision = decided(values(share), values(0.9))
    assert decision.outcome == "promoted" and "verdict_accuracy_false" in decision.differences


def test_what_is_surely_worse_is_rejected_and_the_metric_named():
    decision = decided(values(0.7), values(0.9))
    assert decision.outcome == "rejected"
    assert decision.why.startswith("worse than old: verdict_accuracy_false -0.200 [")


def test_one_metric_that_is_worse_is_enough():
    ours = values(1.0) | values(0.2, metric="final_success")
    theirs = values(0.5) | values(0.6, metric="final_success")
    assert decided(ours, theirs).outcome == "rejected"


def test_metrics_of_another_role_do_not_count():
    ours, theirs = values(0.9) | values(0.1, metric="plan_valid"), values(0.9)
    assert decided(ours, theirs | values(0.9, metric="plan_valid")).outcome == "promoted"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ({"version": "old"}, "in use already"),
        ({"rejected": True}, "rejected before"),
        ({"theirs": values(0.9, metric="plan_valid")}, "nothing to compare"),
    ],
)
def test_otherwise_everything_stays_as_it_is(case, why):
    decision = decided(**{"ours": values(1.0), "theirs": values(0.5)} | case)
    assert decision.outcome == "kept" and why in decision.why


def test_only_rows_of_the_version_itself_are_compared():
    def row(critic, benchmark=BENCHMARK, variant="full_rl"):
        return EvaluationRow(
            benchmark=benchmark,
            variant=variant,
            item_id="item",
            metric="step_reward",
            value=1.0,
            planner="checkpoint:planner_sft_checkpoint@p",
            critic=f"checkpoint:{critic}",
        )

    assert values_of([row(f"{NAME}@new")], "full_rl", f"{NAME}@new")
    others = [row(f"{NAME}@old"), row(f"{NAME}@new", "other"), row(f"{NAME}@new", variant="base")]
    assert not values_of(others, "full_rl", f"{NAME}@new")
