"""Collapsed policies, and those that only look like it."""

from schemas.training import RolloutRow
from training.rewards.rollouts import find_collapse


def rollout(verdict, truth, refined=None, row="row-1"):
    names = ("image", "accuracy", "step_reward", "reward", "error")
    known = {"rollout_id": "r", "run": "run", "step": 1, "response": "", "seconds": 0.0}
    return RolloutRow(
        **(dict.fromkeys(names) | known),
        row_id=row,
        status="malformed" if verdict is None else "scored",
        format=float(verdict is not None),
        verdict=verdict,
        refined_prompt=refined,
        truth=truth,
    )


def policy(judge, refine=lambda n: f"better {n}", count=100):
    """Its rollouts over as many good as bad pictures."""
    verdicts = [(judge(n, n % 2 == 0), n % 2 == 0) for n in range(count)]
    return [rollout(v, t, "" if v else refine(n)) for n, (v, t) in enumerate(verdicts)]


def test_collapses_are_detected():
    cases = [
        (policy(lambda n, truth: True), "accepts everything"),
        (policy(lambda n, truth: n != 50), "accepts everything"),
        (policy(lambda n, truth: False), "rejects everything"),
        (policy(lambda n, truth: truth, lambda n: ""), "never refines"),
        (policy(lambda n, truth: truth, lambda n: "as before "), "never refines"),
        (policy(lambda n, truth: None), "never answers in the form asked for"),
    ]
    for rollouts, name in cases:
        assert find_collapse(rollouts, {"row-1": "as before"}) == name


def test_other_policies_are_not_collapsed():
    cases = {
        "exact": policy(lambda n, truth: truth),
        "confused": policy(lambda n, truth: n % 3 == 0),
        "lenient": policy(lambda n, truth: truth or n % 10 > 1),
        "half-hearted": policy(lambda n, truth: truth, lambda n: "" if n % 4 == 1 else "better"),
        "too few to say": policy(lambda n, truth: True, count=20),
        "all good": [rollout(True, True, "") for _ in range(100)],
        "all bad": [rollout(False, False, "better") for _ in range(100)],
        "none": [],
    }
    for name, rollouts in cases.items():
        assert find_collapse(rollouts, {"row-1": "as before"}) is None, name
