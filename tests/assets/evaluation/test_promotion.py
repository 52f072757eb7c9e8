"""Promotion: decided by intervals against margins, of systems, and never without values."""

import pytest

from assets.core.statistics import Observation
from assets.evaluation.metrics import Summary
from assets.evaluation.promotion import METRICS, assess, choose, decide, values_by_system
from assets.evaluation.settings import EvaluationSettings
from assets.evaluation.systems import System
from assets.evaluation.variants import NEW_CRITIC, NEW_PLANNER
from schemas.training import CRITIC, PLANNER, EvaluationRow
from training.settings import PromotionMargins, TrainingSettings

BENCHMARK = "sketchbook-heldout-dev"


def agents(planner, critic):
    return System(f"{PLANNER}@{planner}", f"{CRITIC}@{critic}")


OLD, NEW = agents("p0", "c0"), agents("p1", "c1")


def item(number):
    return Observation(f"request-{number}", f"item-{number}")


def values(share=1.0, **shares):
    """Every metric is 1 for a share of 100 items, else 0."""
    return {
        metric: {item(i): float(i < shares.get(metric, share) * 100) for i in range(100)}
        for metric in METRICS
    }


def rules(minimum=None, **margins):
    return TrainingSettings(
        promote_at_least=minimum or {}, promotion_margin=PromotionMargins(**margins)
    )


def assessed(ours, *references, rejected=(), variant="full_rl", system=NEW, rule=None):
    named = {OLD if n == 0 else agents(f"p-{n}", f"c-{n}"): v for n, v in enumerate(references)}
    found = Summary({system: ours, **named}, EvaluationSettings())
    return assess(variant, system, found, list(named), rejected, rule or rules())


@pytest.mark.parametrize("references", [(), (values(0.1),)])
def test_a_system_below_the_minimum_is_not_accepted(references):
    rule = rules({"verdict_accuracy_false": 0.5})
    below = assessed(values(0.1), *references, rule=rule)
    assert below.outcome == "undecided" and "verdict_accuracy_false 0.10" in below.why
    assert assessed(values(0.5), *references, rule=rule).outcome == "accepted"
    negative = values() | {"step_reward": {item(i): -0.1 for i in range(100)}}
    assert assessed(negative, rule=rule).outcome == "accepted", "nothing is required of that"


@pytest.mark.parametrize("share", [0.95, 0.9, 0.89])
def test_a_system_within_the_margins_is_accepted(share):
    found = assessed(values(share), values(0.9))
    assert found.outcome == "accepted"
    assert [each.metric for each in found.comparisons] == list(METRICS)


def test_a_system_that_is_worse_by_more_than_the_margin_is_worse_and_the_metric_named():
    found = assessed(values(verdict_accuracy_false=0.7), values(verdict_accuracy_false=0.9))
    assert found.outcome == "worse"
    assert found.why.startswith("worse than the best promoted: verdict_accuracy_false -0.200 [")
    assert "margin 0.05" in found.why


def test_a_difference_that_may_be_beyond_the_margin_is_undecided():
    found = assessed(values(final_success=0.9), values(final_success=1.0))
    assert found.outcome == "undecided" and "final_success -0.100" in found.why
    wider = rules(final_success=0.3)
    assert assessed(values(final_success=0.9), values(final_success=1.0), rule=wider).outcome == (
        "accepted"
    )


def test_few_items_show_nothing():
    def few(wrong):
        return {m: {item(i): float(i >= wrong) for i in range(4)} for m in METRICS}

    assert assessed(few(1), few(0)).outcome == "undecided"
    assert assessed(few(1), few(1)).outcome == "accepted"


def test_small_losses_do_not_add_up():
    """Each of three systems is within the margin of the one before, but not of the best."""
    best, second, third = (values(final_success=share) for share in (0.95, 0.92, 0.89))
    assert assessed(second, best).outcome == "accepted"
    assert assessed(third, second).outcome == "accepted"
    found = assessed(third, second, best)
    assert found.outcome == "undecided" and "final_success" in found.why
    (gap,) = (each for each in found.comparisons if each.metric == "final_success")
    assert gap.difference.mean == pytest.approx(-0.06) and gap.best == agents("p-1", "c-1")


def test_items_of_one_request_are_not_taken_for_independent():
    """Ten requests of ten items each: the whole loss is one request's, so nothing is shown."""

    def grouped(wrong):
        items = {
            Observation(f"request-{i // 10}", f"item-{i}"): float(i >= wrong) for i in range(100)
        }
        return dict.fromkeys(METRICS, items)

    alone = assessed(values(0.9), values())
    together = assessed(grouped(10), grouped(0))
    widths = [
        next(c.difference for c in each.comparisons if c.metric == "verdict_accuracy_true")
        for each in (alone, together)
    ]
    assert widths[0].mean == pytest.approx(widths[1].mean) and widths[1].requests == 10
    # Standard errors of 0.03 and of 0.3 / sqrt(10).
    assert widths[1].high == 0.0 > widths[0].high
    assert widths[1].low < 2 * widths[0].low


def test_more_metrics_make_wider_intervals():
    def shifted(wrong):
        return values() | {"plan_valid": {item(i): float(i >= wrong) for i in range(100)}}

    (gap,) = (
        each for each in assessed(shifted(10), values()).comparisons if each.metric == "plan_valid"
    )
    # A normal approximation: the standard error is 0.03; one test at 5 % is 1.64 of it, one of six
    # 2.39.
    assert gap.difference.low == pytest.approx(-0.1 - 2.39 * 0.03, abs=0.012)


@pytest.mark.parametrize("references", [(), (values(),)])
@pytest.mark.parametrize("missing", [METRICS, ("final_success",)])
def test_a_system_with_a_missing_metric_is_not_accepted(missing, references):
    ours = {metric: found for metric, found in values().items() if metric not in missing}
    found = assessed(ours, *references)
    assert found.outcome == "undecided"
    assert found.why == f"not evaluated: no values of {', '.join(missing)}"


@pytest.mark.parametrize("what", ["metric", "item"])
def test_a_system_that_cannot_be_compared_everywhere_is_not_accepted(what):
    ours, theirs = values(), values()
    if what == "metric":
        del theirs["step_reward"]
    else:
        del ours["step_reward"][item(3)]
    found = assessed(ours, theirs)
    assert found.outcome == "undecided"
    assert found.why == f"cannot be compared with {OLD}: values of step_reward are missing"


def test_a_rejected_version_is_not_accepted_again():
    found = assessed(values(), values(0.5), rejected=["critic c1"])
    assert found.outcome == "undecided" and "`interleave promote` overrules" in found.why


def three(newest, critic_alone, planner_alone):
    """Assessments of the three systems, from their values, compared with perfect ones."""
    systems = {
        "full_rl": (NEW, newest),
        NEW_CRITIC: (agents("p0", "c1"), critic_alone),
        NEW_PLANNER: (agents("p1", "c0"), planner_alone),
    }
    return [
        assessed(ours, values(), variant=name, system=system)
        for name, (system, ours) in systems.items()
    ]


GOOD, BAD = values(), values(0.5)


def outcomes(assessments):
    chosen = choose(assessments, NEW)
    decisions = [decide(n, v, assessments, chosen)[0] for n, v in NEW.versions.items()]
    return (chosen and chosen.variant, *decisions)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((GOOD, GOOD, GOOD), ("full_rl", "promoted", "promoted")),
        ((BAD, GOOD, BAD), (NEW_CRITIC, "rejected", "promoted")),
        ((BAD, BAD, GOOD), (NEW_PLANNER, "promoted", "rejected")),
        ((BAD, BAD, BAD), (None, "rejected", "rejected")),
        ((BAD, {}, BAD), (None, "rejected", "kept")),
    ],
)
def test_planner_and_critic_move_together_or_alone_as_they_were_evaluated(shares, expected):
    assert outcomes(three(*shares)) == expected


def test_of_two_that_can_move_alone_the_better_one_does():
    slightly = values(final_success=0.99)
    assert outcomes(three(BAD, slightly, GOOD))[0] == NEW_PLANNER
    assert outcomes(three(BAD, GOOD, slightly))[0] == NEW_CRITIC


def test_only_rows_of_the_systems_own_versions_count():
    def row(planner="p1", critic="c1", benchmark=BENCHMARK, variant="full_rl", seed=None):
        return EvaluationRow(
            benchmark=benchmark,
            variant=variant,
            item_id="item",
            metric="step_reward",
            value=1.0,
            planner=f"checkpoint/{PLANNER}@{planner}",
            critic=f"checkpoint/{CRITIC}@{critic}",
            prompt_id="request",
            training_seed=seed,
        )

    def found(*rows):
        settings = EvaluationSettings()
        return values_by_system(rows, BENCHMARK, {"full_rl": NEW}, settings).values.get(NEW)

    assert found(row()) == {"step_reward": {Observation("request", "item"): 1.0}}
    assert found(row(critic="c1-afb2ea1d")) == found(row()), "at a server"
    several = [row(), row(variant=NEW_CRITIC).model_copy(update={"item_id": "other"})]
    named = {"full_rl": NEW, NEW_CRITIC: NEW}
    both = values_by_system(several, BENCHMARK, named, EvaluationSettings())
    both = both.of_metric(NEW, "step_reward")
    assert {each.item for each in both} == {"item", "other"}, "a system under two names"
    test_items = row(benchmark="sketchbook-heldout-test")
    others = row("p0"), row("p11"), row(critic="c0-afb2ea1d")
    assert not found(*others, test_items, row(variant="t_max_1"), row(seed=0))
