"""How far critic, scorer and people agree; what is missing is missing."""

from assets.reviews.assets import (
    CRITIC,
    PEOPLE,
    SCORER,
    agreement_rows,
    evaluated_labels,
    evaluation_metadata,
    shard_labels,
)
from schemas.training import EvaluationRow


def lake(world):
    """Eight attempts; the critic is wrong about one by the scores."""
    for number in range(4):
        world.add(f"good{number}", [(9, number > 0)])
        world.add(f"bad{number}", [(2, False)], shard="toy-0001")
    return world.write()


def test_without_people_only_critic_and_scorer_are_compared(world):
    home = lake(world)
    both, with_critic, with_scorer = agreement_rows(shard_labels(home, None, 6.0))
    assert both["between"] == "critic and scorer" and both["attempts"] == "8"
    assert both["share [95 %]"].startswith("0.875 [")
    assert both["kappa [95 %]"].startswith("0.750 [")
    for row in (with_critic, with_scorer):
        assert (row["attempts"], row["share [95 %]"], row["kappa [95 %]"]) == ("0", "–", "–")


def test_people_are_compared_on_what_they_reviewed(world, say):
    home = lake(world)
    for name, accepted in (("good0", True), ("good1", True), ("bad0", False)):
        say(name, 1, 0, accepted=accepted)
    for reviewer in "xy":
        say("bad1", 1, 0, reviewer, accepted=reviewer == "x")
    labels = shard_labels(home, None, 6.0)
    assert labels[PEOPLE]["bad1-run/1/0"] is None, "a tie"
    _, with_critic, with_scorer = agreement_rows(labels)
    assert with_scorer["attempts"] == "4" and with_scorer["without an opinion"] == "25.0%"
    assert with_scorer["share [95 %]"].startswith("1.000")
    assert with_scorer["kappa [95 %]"].startswith("1.000")
    assert with_critic["share [95 %]"].startswith("0.667")
    assert set(shard_labels(home, ["toy-0001"], 6.0)[CRITIC]) == {
        f"bad{number}-run/1/0" for number in range(4)
    }


def test_an_evaluated_critic_is_compared_on_the_attempts_it_judged(world, say):
    home = lake(world)
    say("good0", 1, 0, accepted=False)
    shared = {"benchmark": "toy-heldout-dev", "planner": "p", "critic": "c"}
    rows = [
        EvaluationRow(**shared, variant="full_rl", item_id=item, metric=metric, value=value)
        for item, metric, value in (
            ("good0-run/1/0", "verdict_accuracy_true", 0.0),
            ("bad0-run/1/0", "verdict_accuracy_false", 1.0),
            ("x", "plan_valid", 1.0),
        )
    ]
    labels = shard_labels(home, None, 6.0)
    (sides,) = evaluated_labels(rows, labels).values()
    assert sides[CRITIC] == {"good0-run/1/0": "rejected", "bad0-run/1/0": "rejected"}
    assert sides[SCORER] == {"good0-run/1/0": "accepted", "bad0-run/1/0": "rejected"}
    assert sides[PEOPLE] == {"good0-run/1/0": "rejected"}
    assert "full_rl" in evaluation_metadata(rows, labels)["people/agreement"].value
    assert evaluation_metadata(rows[2:], labels) == {}
