"""Promotion: decided from intervals of differences, and never without values."""

import pytest

from assets.checkpoints.promotion import METRICS, decide, values_of
from schemas.training import EvaluationRow

NAME = "critic_rl_checkpoint"
BENCHMARK = "sketchbook-heldout"


def values(share=1.0, **shares):
    """Every metric of the critic is 1 for a share of 100 items, else 0."""
    return {
        metric: {f"item-{i}": float(i < shares.get(metric, share) * 100) for i in range(100)}
        for metric in METRICS[NAME]
    }


def decision(ours, theirs, version="new", in_use="old", rejected=False, minimum=None):
    return decide(NAME, version, in_use, rejected, ours, theirs, minimum or {})


def test_the_first_of_its_name_is_promoted():
    assert decision(values(0.1), {}, in_use=None).outcome == "promoted"


@pytest.mark.parametrize("in_use", [None, "old"])
def test_a_version_below_the_minimum_stays_a_candidate(in_use):
    minimum = {"verdict_accuracy_false": 0.5, "plan_valid": 0.5}  # the planner's does not count
    below = decision(values(0.1), values(0.1), in_use=in_use, minimum=minimum)
    assert below.outcome == "kept" and "verdict_accuracy_false 0.10" in below.why
    above = decision(values(0.5), values(0.1), in_use=in_use, minimum=minimum)
    assert above.outcome == "promoted"


@pytest.mark.parametrize("share", [0.95, 0.9, 0.89])
def test_a_version_that_is_not_significantly_worse_is_promoted(share):
    found = decision(values(share), values(0.9))
    assert found.outcome == "promoted" and set(found.differences) == set(METRICS[NAME])


def test_a_significantly_worse_version_is_rejected_and_the_metric_named():
    found = decision(values(verdict_accuracy_false=0.7), values(verdict_accuracy_false=0.9))
    assert found.outcome == "rejected"
    assert found.why.startswith("worse than old: verdict_accuracy_false -0.200 [")


def test_one_worse_metric_is_enough():
    ours = values(verdict_accuracy_false=1.0, final_success=0.2)
    theirs = values(verdict_accuracy_false=0.5, final_success=0.6)
    assert decision(ours, theirs).outcome == "rejected"


def test_metrics_of_another_role_do_not_count():
    worse, better = {"plan_valid": {"item": 0.0}}, {"plan_valid": {"item": 1.0}}
    assert decision(values() | worse, values() | better).outcome == "promoted"


@pytest.mark.parametrize("in_use", [None, "old"])
@pytest.mark.parametrize("missing", [METRICS[NAME], ("final_success",)])
def test_a_version_with_a_missing_metric_is_not_promoted(missing, in_use):
    ours = {metric: found for metric, found in values().items() if metric not in missing}
    found = decision(ours, values(), in_use=in_use)
    assert found.outcome == "kept"
    assert found.why == f"not evaluated: no values of {', '.join(missing)}"


def test_a_version_that_cannot_be_compared_in_every_metric_is_not_promoted():
    theirs = {metric: found for metric, found in values().items() if metric != "step_reward"}
    found = decision(values(), theirs)
    assert found.outcome == "kept"
    assert found.why == "cannot be compared with old: no values of step_reward"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ({"version": "old"}, "in use already"),
        ({"rejected": True}, "rejected before"),
        ({"theirs": {}}, "cannot be compared with old"),
    ],
)
def test_otherwise_the_status_stays_as_it_is(case, why):
    found = decision(**{"ours": values(1.0), "theirs": values(0.5)} | case)
    assert found.outcome == "kept" and why in found.why


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

    assert values_of([row(f"{NAME}@new")], BENCHMARK, "full_rl", f"{NAME}@new")
    others = [row(f"{NAME}@old"), row(f"{NAME}@new", "other"), row(f"{NAME}@new", variant="base")]
    assert not values_of(others, BENCHMARK, "full_rl", f"{NAME}@new")
