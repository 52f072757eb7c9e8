"""Constrained answers: of the right form from models that learned none, and still their own."""

import asyncio

from inference.agent_prompts.formatting import parse_plan, read_verdict
from inference.backends.checkpoint.backend import (
    CheckpointBackend,
    CheckpointCritic,
    CheckpointModel,
    CheckpointPlanner,
)
from inference.backends.checkpoint.constrained import FORM_TOKENS
from inference.backends.checkpoint.encoding import AgentQuery
from inference.roles import PlanRequest
from tests.inference.backends.checkpoint.tiny_agents import ACCEPTED, critic_query
from tests.inference.scripted_world import tiny_image
from warehouse import EncodedImage

CPU = CheckpointBackend(device="cpu")


def test_every_answer_of_any_model_can_be_read(untrained, packaged_folder):
    goals = ["a red cat", "two blue houses beside a tree", "nothing"]
    plans = [AgentQuery(goal, (), FORM_TOKENS, form="planner") for goal in goals]
    images = tiny_image(1), tiny_image(2)
    verdicts = [
        AgentQuery(critic_query(goal).text, images, FORM_TOKENS, form="critic") for goal in goals
    ]
    answers = CheckpointModel(untrained, CPU).attempt([*plans, *verdicts])
    for answer in answers[:3]:
        plan = parse_plan(answer.text)
        assert [step.step_number for step in plan.steps] == list(range(1, len(plan.steps) + 1))
        assert all(step.prompt is not None for step in plan.steps)
    answers += CheckpointModel(packaged_folder, CPU).attempt(verdicts)
    assert all(answer.is_complete for answer in answers)
    for answer in answers[3:]:
        verdict = read_verdict(answer.text)
        assert not (verdict.accepted and verdict.refined_prompt)


async def test_agents_are_named_apart_and_their_verdict_is_the_models(untrained, overfitted):
    """The critic that learned to accept everything accepts; the form alone decides nothing."""
    model = CheckpointModel(overfitted, CPU)
    critic = CheckpointCritic(model, "constrained")
    assert critic.model == f"{CheckpointCritic(model).model}-constrained"
    white = EncodedImage.white((96, 96))
    verdict = await critic.judge(None, white, "Draw a cat.", "")
    assert verdict.accepted == ACCEPTED.accepted
    planner = CheckpointPlanner(CheckpointModel(untrained, CPU), "constrained")
    plans = await asyncio.gather(*(planner.plan(PlanRequest(text)) for text in ("a cat", "a dog")))
    assert all(plan.steps for plan in plans)
