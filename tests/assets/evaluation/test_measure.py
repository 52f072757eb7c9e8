"""Evaluating variants with the teachers as agents: the numbers, and going on after a kill."""

import asyncio
from dataclasses import replace

import pytest

from assets.evaluation.agents import AcceptAllCritic, PassthroughPlanner
from assets.evaluation.items import Benchmark, benchmarks
from assets.evaluation.measure import Evaluated, EvaluationContext, evaluate
from assets.evaluation.settings import EvaluationSettings
from assets.evaluation.summary import Summary
from assets.evaluation.variants import Variant
from inference.engine.progress import NullProgress
from inference.roles import UnusableAnswerError, Verdict
from inference.settings import Limits, LoopSettings
from schemas import FoundryError
from schemas.trajectories import TRAJECTORIES
from tests.assets.evaluation.sample_lake import TEACHERS, tell
from warehouse import Home

ALONE = Variant("generator_only", None, None, 1)
PLANNED = Variant("planner_sft", "sketch", None, 1)
FULL = Variant("full_sft", "sketch", "sketch", 5)
PLAYERS = {
    "generator_only": replace(TEACHERS, planner=PassthroughPlanner(), critic=AcceptAllCritic()),
    "planner_sft": replace(TEACHERS, critic=AcceptAllCritic()),
    "full_sft": TEACHERS,
}


@pytest.fixture
def told(home: Home) -> Home:
    tell(home, 18)
    return home


def items(home: Home) -> Benchmark:
    return benchmarks(home, "sketchbook", EvaluationSettings(), 9.0)[0]


def run(
    home: Home, variant: Variant, roles=None, benchmark: Benchmark | None = None, redraws: int = 1
) -> Evaluated:
    roles = roles or PLAYERS[variant.name]
    limits = Limits(tries=1)
    studio = EvaluationContext(
        home, roles.generator, roles.scorer, LoopSettings(), limits, 8, redraws
    )
    return asyncio.run(evaluate(studio, variant, roles, benchmark or items(home), NullProgress()))


def mean(evaluated: Evaluated, metric: str) -> float | None:
    summary = Summary.of(evaluated.rows, "sketchbook-heldout", EvaluationSettings())
    interval = summary.mean(evaluated.rows[0].variant, metric)
    return interval.mean if interval else None


def test_items_are_held_out_and_their_truth_is_their_score(told: Home):
    heldout, categories = benchmarks(told, "sketchbook", EvaluationSettings(), 9.0)
    assert (heldout.name, categories.name) == ("sketchbook-heldout", "sketchbook-heldout-category")
    assert {row.split for row in heldout.stories} == {"heldout"}
    assert {item.prompt_id for item in heldout.attempts} <= {p.prompt_id for p in heldout.stories}
    assert {item.truth for item in heldout.attempts} == {True, False}
    for item in heldout.attempts:
        assert item.truth == (item.grades.overall >= 9 and item.grades.quality >= 9)
        assert bool(item.rewritten) == (item.iteration > 0)


def test_items_are_a_sample_that_more_items_change_little(told: Home):
    few = EvaluationSettings(heldout={"stories": 2, "verdicts": 1})
    chosen = benchmarks(told, "sketchbook", few, 9.0)[0]
    assert chosen.stories == items(told).stories[:2]
    assert sorted(item.truth for item in chosen.attempts) == [False, True]


def test_variants_are_told_apart(told: Home):
    alone, planned, full = (run(told, variant) for variant in (ALONE, PLANNED, FULL))
    successes = [mean(evaluated, "final_success") for evaluated in (alone, planned, full)]
    assert successes == sorted(successes) and successes[0] < successes[2]
    assert mean(planned, "plan_valid") == mean(planned, "plan_correct") == 1
    assert mean(full, "generator_calls") > mean(planned, "generator_calls") > 1
    assert mean(alone, "generator_calls") == 1
    assert mean(full, "step_reward") > 0
    assert mean(full, "verdict_accuracy_true") > 0.8
    assert {row.critic for row in planned.rows} == {"none/accepts-all"}


def test_what_a_variant_does_not_have_is_not_measured(told: Home):
    assert {row.metric for row in run(told, ALONE).rows} == {"final_success", "generator_calls"}
    assert mean(run(told, PLANNED), "verdict_accuracy_true") is None


def test_a_critic_that_accepts_everything_is_right_on_good_pictures_only(told: Home):
    evaluated = run(told, FULL, replace(TEACHERS, critic=AcceptAllCritic()))
    assert mean(evaluated, "verdict_accuracy_true") == 1
    assert mean(evaluated, "verdict_accuracy_false") == 0
    assert mean(evaluated, "step_reward") == 0
    assert mean(evaluated, "refined_gain") is None


def test_a_rewritten_prompt_is_drawn_as_often_as_asked(told: Home):
    once, often = (run(told, FULL, redraws=redraws) for redraws in (1, 4))
    rejected = [r for r in once.rows if r.metric == "refined_gain"]
    draws = [sum(c.role == "generator" for c in e.calls) for e in (once, often)]
    assert draws[1] - draws[0] == 3 * len(rejected)
    assert mean(often, "step_reward") == pytest.approx(mean(once, "step_reward"), abs=0.15)
    assert mean(often, "step_reward") != mean(once, "step_reward")


class Repeating:
    """Rejects everything and proposes what was drawn."""

    backend, model = "test", "repeating"

    async def judge(self, before, after, instruction, prompt):
        return Verdict(False, prompt or instruction, "No.")


def test_t_max_bounds_the_draws_of_a_step(told: Home):
    nagging = replace(TEACHERS, critic=Repeating())
    once, thrice = (run(told, replace(FULL, t_max=t), nagging) for t in (1, 3))
    assert mean(thrice, "generator_calls") == 3 * mean(once, "generator_calls")


class Wordless:
    backend, model = "test", "wordless"

    async def plan(self, request):
        raise UnusableAnswerError("no JSON in the answer")


def test_an_unreadable_plan_counts_as_a_failure_of_everything(told: Home):
    evaluated = run(told, PLANNED, replace(PLAYERS["planner_sft"], planner=Wordless()))
    for metric in ("plan_valid", "plan_correct", "final_success"):
        assert mean(evaluated, metric) == 0
    assert mean(evaluated, "generator_calls") is None


class Failing:
    """The teacher critic, until it has judged so often; then its server is gone."""

    backend, model = TEACHERS.critic.backend, TEACHERS.critic.model

    def __init__(self, lasts: int) -> None:
        self.left, self.asked, self.answered = lasts, 0, 0

    async def judge(self, *question):
        self.asked += 1
        if self.asked > self.left:
            raise ConnectionError("gone")
        verdict = await TEACHERS.critic.judge(*question)
        self.answered += 1
        return verdict


def test_an_evaluation_goes_on_where_it_was_killed(told: Home, tmp_path):
    killed = Failing(20)
    with pytest.raises(FoundryError, match="run again"):
        run(told, FULL, replace(TEACHERS, critic=killed))
    counting = Failing(10_000)
    resumed = run(told, FULL, replace(TEACHERS, critic=counting))
    fresh = Home(tmp_path / "fresh")
    tell(fresh, 18)
    uninterrupted = run(fresh, FULL)
    assert resumed.rows == uninterrupted.rows
    assert resumed.finals == uninterrupted.finals
    judged = sum(call.role == "critic" for call in uninterrupted.calls)
    assert 0 < killed.answered <= 20  # the others were in flight
    assert counting.asked == judged - killed.answered


def test_variants_with_one_agent_share_its_answers(told: Home):
    run(told, FULL)
    counting = Failing(10_000)
    # With fewer attempts a story may go on from another picture, which nobody has judged yet.
    again = run(told, replace(FULL, name="t_max_5", t_max=5), replace(TEACHERS, critic=counting))
    assert counting.asked == 0
    assert {row.variant for row in again.rows} == {"t_max_5"}


def test_trajectories_stay_as_they_were(told: Home):
    before = told.lake.content_hash(TRAJECTORIES, "sketchbook-0000")
    run(told, FULL)
    assert told.lake.content_hash(TRAJECTORIES, "sketchbook-0000") == before
    assert told.lake.partitions(TRAJECTORIES) == ["sketchbook-0000"]
