"""Rewards by the end of a trajectory, against recorded ones and branches of them."""

import asyncio
import math
from contextlib import contextmanager
from functools import partial

import pytest
from PIL import Image

from assets.trajectories.branches import Change, play_branch
from inference.calls.ask import ModelCalls
from inference.calls.call_index import CallIndex
from inference.roles import OutcomeGrade, PlanRequest, RequestOutcome
from inference.settings import LoopSettings
from inference.sketch_world.grader import SketchGrader
from schemas.curation import Evaluation
from schemas.prompts import PROMPTS
from schemas.training import CRITIC
from schemas.trajectories import ATTEMPTS
from tests.training.rewards.reward_world import QUICK, FaultyGenerator, answer
from tests.training.rewards.test_server import load_client
from tests.training.rewards.verl_agent_loop import play_in_verl
from training.rewards.critic import CriticState
from training.rewards.policy_critic import CriticQuestion
from training.rewards.rollouts import rollout_rows
from training.rewards.service import RewardService, serve_rewards
from training.rewards.trajectory import (
    CriticEpisodeReward,
    TrajectoryReward,
    judged_attempts,
    reuse_recorded_calls,
)
from warehouse import EncodedImage, Journal

SETTINGS = QUICK.model_copy(update={"of": "trajectory"})


@pytest.fixture
def foundry(recorded_foundry):
    return recorded_foundry


def id_of(attempt):
    return f"{attempt.trajectory_id}/{attempt.step_number}/{attempt.iteration}"


def state_of(attempt):
    return CriticState(
        origin_prompt=attempt.prompt,
        rewritten_prompt=attempt.prompt if attempt.iteration else "",
        origin_image=attempt.source_image or attempt.image,
        evaluation=Evaluation(success=attempt.accepted, semantics=5.0, quality=5.0),
    )


@contextmanager
def rewards(
    foundry, settings=SETTINGS, generator=None, grader=None, loop=None, of=TrajectoryReward
):
    """Of the models that made the lake's trajectories, whose calls are there already."""
    attempts = judged_attempts(foundry.home, [id_of(row) for row in foundry.rows(ATTEMPTS)])
    roles, grader, loop = foundry.roles, grader or SketchGrader(), loop or LoopSettings()
    generator = generator or roles.generator
    with ModelCalls(foundry.home, CRITIC, "v1", roles, settings.limits) as calls:
        reuse_recorded_calls(calls, attempts.values())
        yield of(calls, lambda _row: generator, settings, loop, grader, attempts)


def part(success, drawings, most):
    return pytest.approx(0.8 * success + 0.2 * (1 - drawings / most if most else 1))


async def is_right(foundry, trajectory):
    """Of recorded attempts of one trajectory, in their order."""
    [prompt] = [row for row in foundry.rows(PROMPTS) if row.prompt_id == trajectory[0].prompt_id]
    attempts = judged_attempts(foundry.home, [id_of(trajectory[-1])])
    images = foundry.home.images
    chosen = tuple((a.step_number, images.get(a.image)) for a in trajectory if a.chosen)
    inputs = tuple(map(images.get, prompt.input_images))
    plan = attempts[id_of(trajectory[-1])].plan
    outcome = RequestOutcome(prompt.prompt_id, PlanRequest(prompt.text, inputs), plan, chosen)
    return (await SketchGrader().grade_outcome(outcome)).success


def by_trajectory(foundry):
    found = {}
    for row in sorted(foundry.rows(ATTEMPTS), key=lambda row: (row.step_number, row.iteration)):
        found.setdefault(row.trajectory_id, []).append(row)
    return list(found.values())


def ledger(foundry):
    return CallIndex.read(foundry.home.journal(CRITIC, "v1")).ledger()


async def test_with_the_recorded_answers_trajectories_end_as_recorded_without_a_call(foundry):
    seen = set()
    with rewards(foundry) as reward:
        for trajectory in by_trajectory(foundry):
            success = await is_right(foundry, trajectory)
            steps = {row.step_number for row in trajectory}
            for number, attempt in enumerate(trajectory):
                recorded = answer(attempt.accepted, attempt.refined_prompt)
                result = await reward.grade(f"{id_of(attempt)}/0", recorded, state_of(attempt))
                assert result.image == [row for row in trajectory if row.chosen][-1].image
                later = sum(step > attempt.step_number for step in steps)
                most = 5 * later + 4 - attempt.iteration
                following = len(trajectory) - number - 1
                assert result.parts.step == part(success, following, most)
                assert result.reward == pytest.approx(0.5 + 0.5 * 0.8 * result.parts.step)
                seen.add((attempt.accepted, bool(later)))
    assert len(seen) == 4, "verdicts of both kinds, at last steps and before"
    calls = ledger(foundry)
    assert calls and all(call.cached and not call.cost_usd for call in calls)


@pytest.fixture
async def served(foundry, tmp_path):
    """The address file of a service of episodes, and its journal."""
    of = partial(CriticEpisodeReward, CriticQuestion("critic"))
    journal, file = Journal(tmp_path / "rollouts.jsonl"), tmp_path / "address.json"
    with rewards(foundry, of=of) as reward:
        async with serve_rewards(RewardService(reward, "v1", journal)) as address:
            with address.written_to(file):
                yield file, journal


def row_of(attempt):
    """Ground truth and `extra_info` of a row."""
    state = state_of(attempt)
    info = state.model_dump(exclude={"evaluation", "later"})
    return state.evaluation.model_dump(), info | {"row_id": f"{id_of(attempt)}/0"}


@pytest.fixture
def ask(served):
    """`next_turn` or `reward_episode` of the client, of answers to an attempt."""
    client = load_client()

    async def ask(name, attempt, answers):
        truth, info = row_of(attempt)
        info["global_steps"] = 4
        return await getattr(client, name)(answers, truth, info, str(served[0]))

    return ask


async def test_an_episode_with_the_recorded_answers_asks_about_the_recorded_images(
    foundry, served, ask
):
    trajectory = max(by_trajectory(foundry), key=len)
    first, *later = trajectory
    assert len(later) > 2 and any(row.iteration for row in later)
    answers = [answer(first.accepted, first.refined_prompt)]
    for attempt in later:
        prompt, (before, after) = await ask("next_turn", first, answers)
        assert EncodedImage(after).sha256 == attempt.image
        assert attempt.source_image in (None, EncodedImage(before).sha256)
        assert prompt.count("<image>") == 2 and (attempt.prompt in prompt)
        answers.append(answer(attempt.accepted, attempt.refined_prompt))
    assert await ask("next_turn", first, answers) == ("", [])
    numbers = await ask("reward_episode", first, answers)
    success, steps = await is_right(foundry, trajectory), {row.step_number for row in trajectory}
    assert numbers["step_reward"] == part(success, len(later), 5 * len(steps) - 1)
    assert numbers["score"] == pytest.approx(0.5 + 0.5 * 0.8 * numbers["step_reward"])
    [row] = rollout_rows(served[1].path)
    assert (row.response, row.step) == ("\n\n".join(answers), 5)
    paid = [call for call in ledger(foundry) if call.backend != "policy" and not call.cached]
    assert not paid, "the recorded images are not drawn again"


async def test_the_policys_later_answers_decide_and_one_that_cannot_be_read_ends_it(foundry, ask):
    trajectories = by_trajectory(foundry)
    [first, *_] = next(each for each in trajectories if each[0].accepted and len(each) > 1)
    accepted, rejected = [answer(True)], [answer(True)]
    while (await ask("next_turn", first, accepted))[0]:
        accepted.append(answer(True))
    while (await ask("next_turn", first, rejected))[0]:
        rejected.append(answer(False))
    plan = judged_attempts(foundry.home, [id_of(first)])[id_of(first)].plan
    images = sum(step.prompt is not None for step in plan.steps)
    t_max = LoopSettings().t_max
    assert len(accepted) == images > 1 and len(rejected) == 1 + t_max * (images - 1)
    unreadable = [answer(True), "?"]
    assert await ask("next_turn", first, unreadable) == ("", [])
    numbers = await ask("reward_episode", first, unreadable)
    assert (numbers["score"], numbers["malformed"]) == (0, 1)
    of_another_home = first.model_copy(update={"trajectory_id": "other"})
    assert await ask("next_turn", of_another_home, [answer(True)]) == ("", [])
    assert (await ask("reward_episode", of_another_home, [answer(True)]))["masked"] == 1
    cut_off = await ask("reward_episode", first, accepted[:1])
    assert cut_off["masked"] == 1, "an image was not judged"


@pytest.mark.long
async def test_verls_agent_loop_plays_an_episode(foundry, served):
    file, journal = served
    first, *later = max(by_trajectory(foundry), key=len)
    truth, info = row_of(first)
    shrunk = {"type": "image", "image": Image.new("RGB", (96, 96)), "max_pixels": 4096}
    path = file.parent / "shown.png"
    shrunk["image"].save(path)
    content = [shrunk | {"image": str(path)}, shrunk | {"image": str(path)}]
    content.append({"type": "text", "text": "Judge it."})
    answers = [answer(row.accepted, row.refined_prompt) for row in (first, *later)]
    row = {
        "raw_prompt": [{"role": "user", "content": content}],
        "reward_model": {"ground_truth": truth},
        "extra_info": info,
    }
    played = await play_in_verl(file, row, answers)
    asked, sizes, masks, (*between, reward), parts = played
    assert len(asked) == len(answers) and all(masks) and not any(between)
    assert all(row.prompt in prompt for row, prompt in zip(later, asked[1:], strict=True))
    assert {tuple(size) for pair in sizes for size in pair} == {(64, 64)}, "as small as the row's"
    [rewarded] = rollout_rows(journal.path)
    found = rewarded.response, rewarded.step, rewarded.reward, rewarded.step_reward
    assert found == ("\n\n".join(answers), 5, reward, parts["step_reward"])
    *_, (reward,), parts = await play_in_verl(file, row, answers, prompt_length=40)
    assert math.isnan(reward) and parts["masked"] == 1, "a later prompt is too long"


async def test_another_answer_is_the_branch_with_it(foundry):
    rejected = next(
        row for row in foundry.rows(ATTEMPTS) if not row.accepted and row.iteration == 0
    )
    change = Change(rejected.step_number, 0, accept=True)
    branch = await asyncio.to_thread(play_branch, foundry, rejected.trajectory_id, change)
    with rewards(foundry) as reward:
        result = await reward.grade(f"{id_of(rejected)}/0", answer(True), state_of(rejected))
    assert result.image == [row for row in branch.attempts if row.chosen][-1].image
    assert result.parts.accuracy == -1 or not result.truth


async def test_what_stops_has_no_later_image(foundry):
    last = max(foundry.rows(ATTEMPTS), key=lambda row: (row.step_number > 1, row.iteration))
    assert last.step_number > 1
    stops = LoopSettings(on_exhausted="stop", t_max=last.iteration + 1)
    with rewards(foundry, loop=stops) as reward:
        result = await reward.grade(f"{id_of(last)}/0", answer(False), state_of(last))
    assert result.image == last.source_image


async def test_of_several_continuations_it_is_the_mean(foundry):
    first = foundry.rows(ATTEMPTS)[0]
    several, found = SETTINGS.model_copy(update={"draws": 2}), []
    for settings, seed in ((SETTINGS, 0), (SETTINGS, 1), (several, 0)):
        with rewards(foundry, settings, loop=LoopSettings(seed=seed)) as reward:
            result = await reward.grade(f"{id_of(first)}/0", answer(False), state_of(first))
        found.append((result.parts.step, len(ledger(foundry))))
    (first_seed, _), (second_seed, played), (mean, played_in_all) = found
    assert mean == pytest.approx((first_seed + second_seed) / 2)
    assert played_in_all == played, "equal continuations share their calls"


async def test_a_refused_prompt_has_no_end_and_a_missing_grade_is_masked(foundry):
    class Unsure(SketchGrader):
        async def grade_outcome(self, outcome):
            return OutcomeGrade(None)

    first = next(row for row in foundry.rows(ATTEMPTS) if row.iteration == 0)
    row, state = f"{id_of(first)}/0", state_of(first)
    with rewards(foundry, generator=FaultyGenerator()) as reward:
        refused = await reward.grade(row, answer(False, "refuse this"), state)
        other = await reward.grade("other/1/0/0", answer(True), state)
    assert refused.image is None and 0 <= refused.parts.step <= 0.2
    assert (other.status, other.reward) == ("masked", None) and "reward.of" in other.error
    with rewards(foundry, grader=Unsure()) as reward:
        unsure = await reward.grade(row, answer(True), state)
    assert (unsure.status, unsure.reward) == ("masked", None)
    assert "gave no grade" in unsure.error
