"""Rewards of plans: by an exact grader, by a judge's rubric, and by what the loop makes of them."""

import json
from contextlib import ExitStack

import pytest

from inference.backends.sketch.backend import SketchCritic, SketchPlanner, SketchScorer
from inference.calls.ask import ModelCalls
from inference.roles import PlanGrade, Roles
from inference.settings import LoopSettings
from inference.sketch_world.grader import SketchGrader
from tests.training.rewards.reward_world import FLAWLESS, FaultyGenerator
from training.rewards.planner import PlannerReward, PlannerState
from training.rewards.reward import PlanRewardSettings
from training.rewards.rollouts import find_collapse, step_figures
from training.rewards.service import RewardRequest, RewardService
from warehouse import Home

REQUEST = "Paint a meadow with a green tree in the center."
RIGHT, WRONG = REQUEST, "Paint a meadow with a red house in the center."


def plan(*prompts: str) -> str:
    steps = [
        {
            "step_number": number,
            "step_name": f"Step {number}",
            "instruction": "Draw it.",
            "prompt": prompt,
            "auxiliary_text": None,
        }
        for number, prompt in enumerate(prompts, 1)
    ]
    return f"<think>so</think>\n<answer>{json.dumps({'execution_plan': steps})}</answer>"


class UnsureGrader(SketchGrader):
    """As a judge that has no rubric for a request."""

    name = "unsure"

    async def grade_plan(self, outcome):
        return PlanGrade(valid=None, correct=None)


QUICK = PlanRewardSettings(draw_timeout_seconds=5, tries=1, backoff_seconds=0)


@pytest.fixture
def generator():
    return FaultyGenerator()


@pytest.fixture
def serve(tmp_path, generator):
    """Makes services of a run, one after the other."""
    home = Home(tmp_path / "home")
    roles = Roles(SketchPlanner(), generator, SketchCritic(), SketchScorer(FLAWLESS))
    with ExitStack() as stack:
        calls = stack.enter_context(ModelCalls(home, "planner_rl", "v1", roles, QUICK.limits))
        journal = stack.enter_context(home.journal("rollouts", "v1"))

        def make(of="plan", grader=None):
            settings = QUICK.model_copy(update={"of": of})
            rewards = PlannerReward(calls, grader or SketchGrader(), settings, LoopSettings())
            return RewardService(rewards, "v1", journal)

        yield make


def asked(response: str, images: tuple[str, ...] = ()) -> RewardRequest:
    state = PlannerState(request=REQUEST, images=list(images))
    return RewardRequest(step=1, row_id="p1", response=response, state=state)


async def test_half_of_the_reward_is_for_the_form_half_for_a_right_plan(serve, generator):
    service = serve()
    texts = plan(RIGHT), plan(WRONG), "I would draw a tree", plan(RIGHT).removesuffix("</answer>")
    rows = [await service.reward(asked(text)) for text in texts]
    assert [row.reward for row in rows] == [1.0, 0.5, 0.0, 0.0]
    assert [row.status for row in rows] == ["scored", "scored", "malformed", "malformed"]
    assert [row.accuracy for row in rows] == [1.0, 0.0, None, None]
    assert not generator.calls, "a plan is graded without a drawing"
    figures = step_figures(service.step(1))
    assert (figures["reward"], figures["accuracy"]) == (0.375, 0.5)
    assert not {"accepted_share", "step_reward"} & figures.keys(), "a critic's alone"


async def test_an_outcome_is_what_the_loop_draws_of_the_plan(serve, generator):
    service = serve("outcome")
    right, wrong, refused = [
        await service.reward(asked(plan(prompt))) for prompt in (RIGHT, WRONG, "refuse this")
    ]
    assert (right.reward, wrong.reward) == (1.0, 0.5) and right.image and wrong.image
    assert (refused.reward, refused.image) == (0.5, None), "nothing is drawn of it"
    drawings = len(generator.calls)
    assert (await serve("outcome").reward(asked(plan(RIGHT)))).image == right.image
    assert len(generator.calls) == drawings, "equal plans share their drawings"


async def test_what_cannot_be_graded_is_masked_and_not_0(serve):
    without_rubric = await serve(grader=UnsureGrader()).reward(asked(plan(RIGHT)))
    assert (without_rubric.status, without_rubric.reward) == ("masked", None)
    assert without_rubric.error == "unsure gave no grade"
    without_image = await serve().reward(asked(plan(RIGHT), images=("0" * 64,)))
    assert (without_image.status, without_image.reward) == ("masked", None)
    assert "0000" in without_image.error


async def test_a_planner_that_gives_no_plans_has_collapsed(serve):
    service = serve()
    for response in ["no plan"] * 20:
        await service.reward(asked(response))
    assert find_collapse(service.recent_rows(1), {}) == "never answers in the form asked for"
    for prompt in [WRONG] * 5:
        await service.reward(asked(plan(prompt)))
    assert find_collapse(service.recent_rows(1), {}) is None
