"""Evaluating variants with the sketch world's agents: values, graders, resuming after a kill."""

import asyncio
import shutil
from dataclasses import replace

import pyarrow.compute as pc
import pytest

from assets.core.profile import load_profile
from assets.evaluation.agents import AcceptAllCritic, PassthroughPlanner
from assets.evaluation.items import HeldOutItems, is_test, load_benchmarks, part_of
from assets.evaluation.measure import VariantResult, evaluate_variant
from assets.evaluation.metrics import Summary
from assets.evaluation.settings import EvaluationSettings
from assets.evaluation.variants import Variant
from inference.backends.sketch.backend import SketchGenerator
from inference.calls.progress import NullProgress
from inference.generators import roles_of_prompt
from inference.roles import OutcomeGrade, PlanGrade, UnusableAnswerError, Verdict
from inference.settings import Limits, LoopSettings
from inference.sketch_world.grader import SketchGrader
from schemas import FoundryError
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, TRAJECTORIES
from tests.assets.evaluation.sample_lake import SKETCH_ROLES
from warehouse import Home

GENERATOR_ONLY = Variant("generator_only", None, None, 1)
PLANNER_ONLY = Variant("planner_sft", "planner", None, 1)
EXACT = SketchGrader()
SKETCHBOOK = load_profile("sketch")
FIRST_PARTS = ["dev", "dev", "dev", "dev", "test", "dev", "test", "test"]
FULL = Variant("full_sft", "planner", "critic", 5)
ROLES = {
    "generator_only": replace(SKETCH_ROLES, planner=PassthroughPlanner(), critic=AcceptAllCritic()),
    "planner_sft": replace(SKETCH_ROLES, critic=AcceptAllCritic()),
    "full_sft": SKETCH_ROLES,
}


def heldout(home: Home) -> HeldOutItems:
    """All items of split heldout, of both parts, so that few requests have many items."""
    dev, test, _ = benchmarks_of(home)
    requests, attempts = dev.requests + test.requests, dev.attempts + test.attempts
    return replace(dev, requests=requests, attempts=attempts)


def evaluate(
    home: Home,
    variant: Variant,
    roles=None,
    redraws: int = 1,
    grader=EXACT,
    loop: LoopSettings | None = None,
    items: HeldOutItems | None = None,
) -> VariantResult:
    roles = roles or ROLES[variant.name]
    settings = {
        "loop": loop or LoopSettings(),
        "limits": Limits(tries=1),
        "evaluation": EvaluationSettings(in_flight=8, redraws=redraws),
    }
    profile, items = SKETCHBOOK.model_copy(update=settings), items or heldout(home)
    work = evaluate_variant(home, profile, grader, variant, roles, items, NullProgress())
    return asyncio.run(work)


@pytest.fixture(scope="module")
def evaluated_home(sample_template, tmp_path_factory) -> Home:
    return Home(shutil.copytree(sample_template, tmp_path_factory.mktemp("evaluated") / "home"))


@pytest.fixture(scope="module")
def evaluated(evaluated_home) -> dict[str, VariantResult]:
    """Three variants on one home, which gives their answers again."""
    variants = (GENERATOR_ONLY, PLANNER_ONLY, FULL)
    return {each.name: evaluate(evaluated_home, each) for each in variants}


def mean(result: VariantResult, metric: str) -> float | None:
    summary = Summary.of(result.rows, "sketchbook-heldout-dev", EvaluationSettings())
    interval = summary.mean(result.rows[0].variant, metric)
    return interval.mean if interval else None


def metrics(result: VariantResult) -> set[str]:
    return {row.metric for row in result.rows}


def benchmarks_of(home: Home, **settings) -> list[HeldOutItems]:
    return load_benchmarks(home, "sketchbook", EvaluationSettings(**settings), 9.0)


def prompts_of(items: HeldOutItems) -> set[str]:
    return {item.prompt_id for item in (*items.requests, *items.attempts)}


def test_items_are_held_out_and_the_correct_verdict_follows_from_scores(sample_home):
    dev, test, category = benchmarks_of(sample_home)
    names = {"sketchbook-heldout-dev": dev, "sketchbook-heldout-test": test}
    names["sketchbook-heldout-category-test"] = category
    for name, items in names.items():
        assert items.name == name and is_test(name) == (items is not dev)
    assert {row.split for row in dev.requests} == {"heldout"}
    assert prompts_of(dev) == {row.prompt_id for row in dev.requests}
    assert prompts_of(test) and not prompts_of(dev) & prompts_of(test)
    stored = sample_home.lake.read(PROMPTS, where=pc.field("split") == "heldout")
    assert prompts_of(dev) | prompts_of(test) == set(stored["prompt_id"].to_pylist())
    both_parts = heldout(sample_home).attempts
    assert {item.truth for item in both_parts} == {True, False}
    for item in both_parts:
        assert item.truth == (item.grades.overall >= 9 and item.grades.quality >= 9)
        assert bool(item.rewritten) == (item.iteration > 0)


def test_samples_of_items(sample_home):
    dev, test, _ = benchmarks_of(sample_home, heldout={"stories": 3, "verdicts": 3})
    assert (len(dev.requests), len(test.requests)) == (2, 1), "numbers are those of both parts"
    assert len(dev.attempts) <= 4 and len(test.attempts) <= 2
    every, *_ = benchmarks_of(sample_home)
    sample, *_ = benchmarks_of(sample_home, heldout={"stories": 2, "verdicts": 1})
    assert sample.requests == every.requests[: len(sample.requests)], "a part of a larger sample"
    truths = [item.truth for item in sample.attempts]
    assert sorted(truths) == sorted({item.truth for item in every.attempts})
    assert set(sample.attempts) <= set(every.attempts)

    shard = "sketchbook-0001"
    row = every.requests[0].model_copy(update={"shard": shard})
    sample_home.lake.write(PROMPTS, [row], shard)
    found, *_ = benchmarks_of(sample_home)
    assert shard in {request.shard for request in found.requests}, "one without trajectories"


def test_a_third_of_the_prompts_is_test_and_each_stays_where_it_is():
    parts = [part_of("heldout", f"sketchbook-{number}") for number in range(3000)]
    assert parts.count("test") == pytest.approx(1000, abs=90)
    # A change would move prompts that settings were chosen by into what is reported.
    assert parts[:8] == FIRST_PARTS
    assert part_of("heldout_category", "sketchbook-1") == "test"


def test_better_variants_have_better_values(evaluated):
    generator_only, planned, full = evaluated.values()
    successes = [mean(result, "final_success") for result in evaluated.values()]
    assert successes == sorted(successes) and successes[0] < successes[2]
    assert mean(planned, "plan_valid") == mean(planned, "plan_correct") == 1
    assert mean(full, "generator_calls") > mean(planned, "generator_calls") > 1
    assert mean(generator_only, "generator_calls") == 1
    assert mean(full, "step_reward") > 0
    assert mean(full, "verdict_accuracy_true") > 0.8
    assert {row.critic for row in planned.rows} == {"none/accepts-all"}
    assert metrics(generator_only) == {"final_success", "generator_calls"}
    assert mean(planned, "verdict_accuracy_true") is None


def test_without_a_grader_its_metrics_are_missing_and_the_others_unchanged(
    evaluated, evaluated_home
):
    graded, ungraded = evaluated["full_sft"], evaluate(evaluated_home, FULL, grader=None)
    grader_metrics = {"plan_valid", "plan_correct", "final_success"}
    assert metrics(graded) - metrics(ungraded) == grader_metrics
    assert ungraded.rows == [row for row in graded.rows if row.metric not in grader_metrics]
    assert ungraded.finals == graded.finals


class OnlyForm:
    """A grader of the form of plans alone."""

    name = "form"

    async def grade_plan(self, outcome):
        return PlanGrade(valid=outcome.plan is not None, correct=None)

    async def grade_outcome(self, outcome):
        return OutcomeGrade(success=None)


def test_grades_that_a_grader_does_not_give_are_missing(evaluated_home):
    result = evaluate(evaluated_home, PLANNER_ONLY, grader=OnlyForm())
    assert metrics(result) == {"plan_valid", "generator_calls"}
    assert mean(result, "plan_valid") == 1


def test_a_critic_that_accepts_everything_is_right_about_good_images_only(evaluated_home):
    result = evaluate(evaluated_home, FULL, replace(SKETCH_ROLES, critic=AcceptAllCritic()))
    assert mean(result, "verdict_accuracy_true") == 1
    assert mean(result, "verdict_accuracy_false") == 0
    assert mean(result, "step_reward") == 0
    assert mean(result, "refined_gain") is None


def test_a_rewritten_prompt_is_drawn_redraws_times(sample_home):
    one, four = (evaluate(sample_home, FULL, redraws=redraws) for redraws in (1, 4))
    rejected = [row for row in one.rows if row.metric == "refined_gain"]
    draws = [sum(call.role == "generator" for call in result.calls) for result in (one, four)]
    assert draws[1] - draws[0] == 3 * len(rejected)
    assert mean(four, "step_reward") == pytest.approx(mean(one, "step_reward"), abs=0.15)
    assert mean(four, "step_reward") != mean(one, "step_reward")


class NamedGenerator(SketchGenerator):
    """The sketch world's generator under another name."""

    def __init__(self, name: str) -> None:
        super().__init__(SKETCHBOOK.sketch)
        self.backend = name


def test_of_a_mix_the_first_draws_requests_and_who_drew_an_attempt_draws_it_again(sample_home):
    one, two = NamedGenerator("one"), NamedGenerator("two")
    roles, items = (
        replace(SKETCH_ROLES, generator=one, mix=((one, 1), (two, 1))),
        heldout(sample_home),
    )
    requests = evaluate(sample_home, FULL, roles, items=replace(items, attempts=[]))
    both = evaluate(sample_home, FULL, roles, items=replace(items, requests=[]))
    assert drawers(requests.calls) == {(row.prompt_id, "one") for row in items.requests}
    redrawn = drawers(both.calls[len(requests.calls) :])
    assert {backend for _, backend in redrawn} == {"one", "two"}
    assert all(roles_of_prompt(roles, name).generator.backend == own for name, own in redrawn)


def drawers(calls):
    return {(call.prompt_id, call.backend) for call in calls if call.role == "generator"}


class RepeatingCritic:
    """Rejects everything and proposes the same prompt again."""

    backend, model = "test", "repeating"

    async def judge(self, before, after, instruction, prompt):
        return Verdict(False, prompt or instruction, "No.")


class ManyImagesGenerator(SketchGenerator):
    """The sketch world's generator, which is given all images and records them."""

    max_reference_images = None

    def __init__(self):
        super().__init__()
        self.given = []

    async def generate(self, prompt, images, seed):
        self.given.append([image.sha256 for image in images])
        return await super().generate(prompt, images, seed)


@pytest.mark.parametrize("conditioning", ["last", "all"])
def test_rewritten_prompts_are_drawn_from_what_the_loop_draws_from(sample_home, conditioning):
    generator, found = ManyImagesGenerator(), heldout(sample_home)
    bad = [item for item in found.attempts if not item.truth and item.step_number > 1]
    roles = replace(SKETCH_ROLES, critic=RepeatingCritic(), generator=generator)
    items = replace(found, requests=(), attempts=tuple(bad))
    loop = LoopSettings(conditioning=conditioning)
    evaluate(sample_home, FULL, roles, loop=loop, items=items)
    attempts = sample_home.lake.read(ATTEMPTS).to_pylist()
    for item in bad:
        chosen = [
            row["image"]
            for row in sorted(attempts, key=lambda row: row["step_number"])
            if row["prompt_id"] == item.prompt_id
            and row["chosen"]
            and row["step_number"] < item.step_number
        ]
        assert (chosen if conditioning == "all" else chosen[-1:]) in generator.given
    assert len(generator.given) == len(bad) > 3
    assert (max(map(len, generator.given)) > 1) == (conditioning == "all")


def test_t_max_limits_the_draws_of_a_step(evaluated_home):
    roles = replace(SKETCH_ROLES, critic=RepeatingCritic())
    items = replace(heldout(evaluated_home), attempts=())
    one, three = (
        evaluate(evaluated_home, replace(FULL, t_max=t), roles, items=items) for t in (1, 3)
    )
    assert mean(three, "generator_calls") == 3 * mean(one, "generator_calls")


class UnreadablePlanner:
    backend, model = "test", "unreadable"

    async def plan(self, request):
        raise UnusableAnswerError("no JSON in the answer")


def test_an_unreadable_plan_is_graded_as_wrong(evaluated_home):
    roles = replace(ROLES["planner_sft"], planner=UnreadablePlanner())
    result = evaluate(evaluated_home, PLANNER_ONLY, roles)
    for metric in ("plan_valid", "plan_correct", "final_success"):
        assert mean(result, metric) == 0
    assert mean(result, "generator_calls") is None


class FailingCritic:
    """The sketch world's critic, whose server stops after some calls."""

    backend, model = SKETCH_ROLES.critic.backend, SKETCH_ROLES.critic.model

    def __init__(self, answers: int = 10_000) -> None:
        self.limit, self.calls, self.answered = answers, 0, 0

    async def judge(self, *arguments):
        self.calls += 1
        if self.calls > self.limit:
            raise ConnectionError("gone")
        verdict = await SKETCH_ROLES.critic.judge(*arguments)
        self.answered += 1
        return verdict


def test_a_killed_evaluation_resumes(sample_home, evaluated):
    failing = FailingCritic(20)
    with pytest.raises(FoundryError, match="run again"):
        evaluate(sample_home, FULL, replace(SKETCH_ROLES, critic=failing))
    counting = FailingCritic()
    resumed = evaluate(sample_home, FULL, replace(SKETCH_ROLES, critic=counting))
    uninterrupted = evaluated["full_sft"]
    assert resumed.rows == uninterrupted.rows
    assert resumed.finals == uninterrupted.finals
    own = [call for call in uninterrupted.calls if call.backend == FailingCritic.backend]
    judged = sum(call.role == "critic" for call in own)
    assert 0 < failing.answered <= 20  # the others were in flight
    assert counting.calls == judged - failing.answered


def test_variants_with_the_same_agent_share_its_answers(evaluated, evaluated_home, sample_home):
    counting = FailingCritic()
    # The same t_max: with fewer attempts a step may continue from an image not judged before.
    same = replace(FULL, name="t_max_5", t_max=5)
    again = evaluate(evaluated_home, same, replace(SKETCH_ROLES, critic=counting))
    assert counting.calls == 0
    assert {row.variant for row in again.rows} == {"t_max_5"}
    lake, before = evaluated_home.lake, sample_home.lake
    assert lake.content_hashes(TRAJECTORIES) == before.content_hashes(TRAJECTORIES)
