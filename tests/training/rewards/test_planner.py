"""Rewards of plans: by an exact grader, by a judge's rubric, and by what the loop makes of them."""

import json
from contextlib import ExitStack

import pytest

from inference.backends.sketch.backend import SketchCritic, SketchPlanner, SketchScorer
from inference.calls.ask import ModelCalls
from inference.roles import PlanGrade, Roles
from inference.settings import LoopSettings
from inference.sketch_world.grader import SketchGrader
from tests.training.rewards.reward_world import FLAWLESS, FaultyGenerator, answer
from tests.training.rewards.verl_agent_loop import play_in_verl
from training.rewards.planner import PlannerEpisodeReward, PlannerReward, PlannerState
from training.rewards.policy_critic import CriticQuestion
from training.rewards.reward import PlanRewardSettings
from training.rewards.rollouts import find_collapse, step_figures
from training.rewards.service import NextTurn, RewardRequest, RewardService, serve_rewards
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


QUESTION = CriticQuestion("critic")
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
            shared = calls, grader or SketchGrader(), settings, LoopSettings()
            if of == "episode":
                return RewardService(PlannerEpisodeReward(*shared, QUESTION), "v1", journal)
            return RewardService(PlannerReward(*shared), "v1", journal)

        yield make


def asked(
    response: str, images: tuple[str, ...] = (), later: tuple[str, ...] = ()
) -> RewardRequest:
    state = PlannerState(request=REQUEST, images=list(images), later=later)
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


async def test_in_an_episode_the_policy_judges_what_is_drawn_of_its_plan(serve, generator):
    service, two = serve("episode"), plan(WRONG, RIGHT)
    first = await service.next_turn(asked(two))
    assert WRONG in first.prompt and first.prompt.count("<image>") == len(first.images) == 2
    rejects = answer(False, RIGHT)
    redrawn = await service.next_turn(asked(two, later=(rejects,)))
    assert WRONG in redrawn.prompt and RIGHT in redrawn.prompt, "the plan's prompt and the new one"
    assert redrawn.images[0] == first.images[0] and redrawn.images[1] != first.images[1]
    second = await service.next_turn(asked(two, later=(rejects, answer(True))))
    assert second.images[0] == redrawn.images[1], "what it accepted is drawn from"
    answers = rejects, answer(True), answer(True)
    assert await service.next_turn(asked(two, later=answers)) == NextTurn()
    drawings = len(generator.calls)
    row = await service.reward(asked(two, later=answers))
    assert (drawings, len(generator.calls)) == (3, 3), "what was played is not drawn again"
    saved = 1 - 3 / (2 * LoopSettings().t_max)
    assert (row.accuracy, row.step_reward) == (1, pytest.approx(0.8 + 0.2 * saved))
    assert row.reward == pytest.approx(0.5 + 0.5 * row.step_reward)
    assert row.response == "\n\n".join([two, *answers])
    wrong = await service.reward(asked(plan(WRONG), later=(answer(True),)))
    assert (wrong.accuracy, wrong.step_reward) == (0, pytest.approx(0.2 * 4 / 5))


@pytest.mark.long
async def test_verls_agent_loop_plays_it(serve, tmp_path):
    file, two = tmp_path / "address.json", plan(RIGHT, RIGHT)
    row = {
        "raw_prompt": [{"role": "user", "content": REQUEST}],
        "reward_model": {"ground_truth": {"request": REQUEST}},
        "extra_info": {"row_id": "p1", "images": []},
    }
    async with serve_rewards(serve("episode")) as address:
        with address.written_to(file):
            played = await play_in_verl(file, row, [two, answer(True), answer(True)])
    asked, sizes, masks, (*between, reward), parts = played
    assert len(asked) == 3 and REQUEST in asked[0] and all(RIGHT in each for each in asked[1:])
    assert [len(images) for images in sizes] == [0, 2, 2]
    assert {tuple(size) for images in sizes for size in images} == {(64, 64)}
    assert all(masks) and not any(between)
    assert (parts["accuracy_reward"], reward) == (1, 0.5 + 0.5 * parts["step_reward"])


async def test_an_episode_without_an_answer_that_counts_earns_nothing(serve):
    service = serve("episode")
    for response, later in (("no plan", ()), (plan(RIGHT), ("?",))):
        request = asked(response, later=later)
        assert await service.next_turn(request) == NextTurn()
        row = await service.reward(request)
        assert (row.status, row.reward) == ("malformed", 0)
    cut_off = await service.reward(asked(plan(RIGHT)))
    assert (cut_off.status, cut_off.reward) == ("masked", None), "an image was not judged"
    assert "no answer to an image" in cut_off.error
    refused = asked(plan("refuse this"))
    assert await service.next_turn(refused) == NextTurn(), "there is nothing to judge"
    assert (await service.reward(refused)).accuracy == 0


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
