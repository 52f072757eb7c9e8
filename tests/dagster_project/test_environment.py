"""`interleave env serve`: OpenEnv's protocol as its own client speaks it, and rewards that are our
trainer's."""

import json
import re
import signal
import subprocess
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from assets.core.profile import load_profile
from dagster_project.environment import open_environment
from inference.calls.ask import ModelCalls
from inference.shard import plan_shard, run_shard, score_shard
from schemas.curation import Evaluation
from tests.helpers.command import INTERLEAVE, interleave
from training.environment.openenv import KEYS, Session
from training.rewards.critic import CriticReward, CriticState
from training.rewards.service import RewardRequest, RewardService
from warehouse import EncodedImage, Home

ACCEPT = '<think>so</think>\n<answer>{"previous_step_success": true, "refine_prompt": ""}</answer>'
REDRAW = ACCEPT.replace("true", "false")
REJECT = REDRAW.replace('""', '"Paint a meadow with a red tree."')


@pytest.fixture
def profile():
    return load_profile("sketch")


@contextmanager
def served(home, *options, **variables):
    """The address of a server in a process of its own."""
    command = [*INTERLEAVE, "env", "serve", "--port", "0", "--home", home.root, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables) as server:
        try:
            yield re.search(r"http://(\S+)", server.stderr.readline())[1]
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(20) == 0 and server.stderr.read().endswith("stopped\n")


def ask(socket, kind, **data):
    """What a message of OpenEnv's client is answered with."""
    socket.send(json.dumps({"type": kind} | ({"data": data} if data else {})))
    return json.loads(socket.recv(60))


async def play(environment, seed, *answers):
    """The data of the answers to a reset and to steps."""
    session = Session(environment)
    messages = [{"type": "reset", "data": {"seed": seed}}]
    messages += [{"type": "step", "data": {"answer": answer}} for answer in answers]
    replies = [await session.answer(json.dumps(message)) for message in messages]
    await session.aclose()
    return [reply["data"] for reply in replies]


def test_a_session_speaks_openenvs_protocol(home):
    variables = {"PATH": "/usr/bin:/bin", KEYS: "sesame"}
    with served(home, "--sessions", "2", **variables) as address:
        assert json.load(urlopen(f"http://{address}/health")) == {"status": "healthy"}
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"http://{address}/schema")
        keyed = Request(f"http://{address}/schema", headers={"Authorization": "Bearer sesame"})
        schema = json.load(urlopen(keyed))["action"]
        # By these verifiers knows that a reply is the answer, and not a call of a tool.
        assert (schema["title"], schema["required"]) == ("Answer", ["answer"])
        with pytest.raises(InvalidStatus, match="401"):
            connect(f"ws://{address}/ws")
        with pytest.raises(InvalidStatus, match="403"):  # a page of another origin
            connect(f"ws://any:sesame@{address}/ws", origin="http://elsewhere.example")
        with (
            connect(f"ws://any:sesame@{address}/ws") as one,
            connect(
                f"ws://{address}/ws", additional_headers={"Authorization": "Bearer sesame"}
            ) as two,
        ):
            first = ask(one, "reset", seed=7, episode_id="mine")
            assert first["type"] == "observation" and first["data"]["done"] is False
            asked = first["data"]["observation"]
            assert asked["prompt"].count("<image>") == len(asked["images"]) == 2
            assert all(image.startswith("data:image/png;base64,") for image in asked["images"])
            assert ask(two, "reset", seed=7)["data"] == first["data"]
            graded = ask(one, "step", answer=ACCEPT, metadata={})["data"]
            assert graded["done"] and graded["reward"] == graded["observation"]["answer_reward"]
            assert ask(two, "step", answer=ACCEPT)["data"] == graded
            state = {"episode_id": "mine", "step_count": 1, "seed": 7}
            assert ask(one, "state") == {"type": "state", "data": state}
            for kind, data, code in (
                ("step", {"answer": ACCEPT}, "EXECUTION_ERROR"),  # the episode has ended
                ("step", {"text": "?"}, "VALIDATION_ERROR"),
                ("reset", {"seed": -1}, "VALIDATION_ERROR"),
                ("pause", {}, "UNKNOWN_TYPE"),
            ):
                error = ask(one, kind, **data)
                assert (error["type"], error["data"]["code"]) == ("error", code)
            with connect(f"ws://any:sesame@{address}/ws") as three:
                assert json.loads(three.recv(60))["data"]["code"] == "CAPACITY_REACHED"


def test_a_server_beyond_this_machine_needs_a_key(capsys, home, monkeypatch):
    monkeypatch.delenv(KEYS, raising=False)
    done = interleave(capsys, "env", "serve", "--host", "0.0.0.0", "--home", home.root)
    assert done.returncode == 1 and f"set {KEYS} to a key" in done.stderr


async def test_rewards_are_those_of_our_trainer(profile, tmp_path):
    """Rows that the lineage makes of the same requests, graded by the service that verl asks."""
    graded = {}
    with open_environment(profile, Home(tmp_path / "environment"), "step") as environment:
        prompts = environment.prompts[:6]
        for seed in range(6):
            for answer in (ACCEPT, REDRAW, REJECT, "no answer"):
                asked, last = await play(environment, seed, answer)
                graded[asked["observation"]["row_id"], answer] = last["reward"]
    home, shard = Home(tmp_path / "lineage"), prompts[0].shard
    roles, loop, limits = profile.build(home), profile.loop, profile.limits
    plans = (await plan_shard(prompts, roles, home, loop, limits)).plans
    run = await run_shard(prompts, plans, roles, home, shard, loop, limits)
    scored = (run.attempts, run.trajectories, plans, roles, home, shard, limits)
    scores = (await score_shard(*scored)).scores
    states = dict(
        critic_states(home, run.attempts, plans, scores, profile.curation.critic.verdicts)
    )
    settings = profile.training.critic_rl.reward
    with (
        ModelCalls(home, "critic", "run", roles, settings.limits) as calls,
        home.journal("rollouts", "run") as journal,
    ):
        rewards = CriticReward(calls, lambda _row: roles.generator, settings)
        service = RewardService(rewards, "run", journal)
        for (row, answer), reward in graded.items():
            request = RewardRequest(step=1, row_id=row, response=answer, state=states[row])
            assert (await service.reward(request)).reward == reward
    assert len(graded) == 24 and len(set(graded.values())) > 3


def critic_states(home, attempts, plans, scores, verdicts):
    """Row of `critic_rl` -> its state, of all attempts."""
    goals = {(plan.prompt_id, plan.step_number): plan.prompt for plan in plans}
    for attempt, score in zip(attempts, scores, strict=True):
        low, high = verdicts.accept_at_least, verdicts.reject_at_most
        overall, before = score.overall, attempt.source_image
        canvas = EncodedImage.white(home.images.get(attempt.image).image.size)
        yield (
            f"{attempt.trajectory_id}/{attempt.step_number}/{attempt.iteration}/0",
            CriticState(
                origin_prompt=goals[attempt.prompt_id, attempt.step_number],
                rewritten_prompt=attempt.prompt if attempt.iteration else "",
                origin_image=before or home.images.put(canvas),
                evaluation=Evaluation(
                    success=overall >= low if attempt.accepted else overall > high,
                    semantics=score.semantics,
                    quality=score.quality,
                ),
            ),
        )


async def test_a_trajectory_goes_on_with_the_policys_verdicts(profile, home):
    """Rejecting all takes every attempt of every step; its images are graded at the end."""
    with open_environment(profile, home, "trajectory") as environment:
        first, *middle, last = await play(environment, 1, *[REJECT] * 25)
        steps = len({turn["observation"]["row_id"].split("/")[1] for turn in (first, *middle)})
        assert last["observation"]["drawings"] == steps * profile.loop.t_max == 25
        assert last["done"] and last["reward"] == float(last["observation"]["success"])
        assert not any(turn["done"] or turn["reward"] for turn in middle)
        assert all(turn["observation"]["answer_reward"] is not None for turn in (*middle, last))
        accepted = await play(environment, 1, *[ACCEPT] * steps)
        assert accepted[-1]["observation"]["drawings"] == steps
        assert accepted[0] == first


async def test_a_plan_is_graded_as_in_planner_rl(profile, home):
    from inference.agent_prompts.formatting import planner_answer
    from inference.backends.sketch.backend import SketchPlanner
    from inference.roles import PlanRequest

    with open_environment(profile, home, "plan", dev=True) as environment:
        request = environment.prompts[5]
        assert request.split == "heldout"
        plan = await SketchPlanner().plan(PlanRequest(request.text))
        (asked, good), (_, bad) = [
            await play(environment, 5, answer) for answer in (planner_answer(plan), "no plan")
        ]
        assert request.text in asked["observation"]["prompt"]
        assert (good["reward"], bad["reward"]) == (1.0, 0.0)
        assert bad["observation"]["status"] == "malformed"
