"""Planner, critic, scorer and generator at a provider, through the official clients."""

import asyncio
import weakref

import pytest
from PIL import Image

from inference.backends.providers import agents
from inference.backends.providers.errors import NoAnswerError
from inference.backends.providers.settings import AgentModel
from inference.calls.retry import CallUsage, collect_usage
from inference.roles import BackendError, PlanRequest, RetryableError, UnusableAnswerError
from tests.inference.backends.providers.api_formats import gemini_parts
from tests.inference.backends.providers.faulty_provider import FaultSchedule, provider
from tests.inference.backends.providers.provider_roles import AGENT, generator_of, provider_roles
from warehouse import EncodedImage, Home

REQUEST = PlanRequest("Show how to grow a red flower")
GOAL = "Draw a meadow with a red flower at the bottom center."


def build_roles(server, backend, agent=None, seconds=20, **profile):
    """All agents with the same settings; the scorer never in tags."""
    agent = AGENT | (agent or {})
    scorer = {key: value for key, value in agent.items() if key != "form"}
    agents = {"planner": agent, "critic": agent, "scorer": scorer} | generator_of(backend)
    home = Home("memory://providers")
    return provider_roles(server, backend, home, agents, profile, timeout_seconds=seconds)


def plan(roles):
    """A plan, and the usage of its call."""
    usage = CallUsage()

    async def call():
        with collect_usage(usage):
            return await roles.planner.plan(REQUEST)

    return asyncio.run(call()), usage


def test_a_role_can_have_its_own_endpoint():
    """Two servers, one for each of two roles of one backend."""
    with provider() as first, provider() as second:
        elsewhere = AGENT | {"endpoints": [{"url": f"{second.url}/v1", "key": "TEST_KEY"}]}
        home = Home("memory://providers")
        roles = provider_roles(first, "openai", home, {"planner": AGENT, "critic": elsewhere})

        async def both():
            await roles.planner.plan(REQUEST)
            await roles.critic.judge(None, EncodedImage.white((96, 96)), GOAL, "")

        asyncio.run(both())
    assert [len(server.bodies) for server in (first, second)] == [1, 1]


def test_images_are_sent_before_the_text(backend):
    image = EncodedImage.white((96, 96))

    async def both(roles):
        verdict = await roles.critic.judge(None, image, GOAL, "")
        return verdict, await roles.scorer.score(None, image, GOAL)

    with provider() as server:
        verdict, score = asyncio.run(both(build_roles(server, backend)))
        content = server.bodies[0]
    assert not verdict.accepted
    assert verdict.refined_prompt
    assert score.edit_success < 5
    assert part_kinds(content, backend) == ["image", "image", "text"]


def part_kinds(body, backend):
    if backend == "openai":
        parts = body["messages"][-1]["content"]
        return ["text" if part["type"] == "text" else "image" for part in parts]
    return ["text" if "text" in part else "image" for part in body["contents"][-1]["parts"]]


def test_images_are_drawn_from_all_that_are_sent_reduced_where_the_profile_says_so():
    edit = "Add a blue bird at the top left. Keep everything else unchanged."
    whites = [EncodedImage.white((side, 16)) for side in (16, 24)]

    async def draw(roles):
        first = await roles.generator.generate(GOAL, (), 1)
        return first, await roles.generator.generate(edit, (*whites, first), 2)

    with provider() as server:
        first, second = asyncio.run(draw(build_roles(server, "gemini")))
        body = server.bodies[1]
        reduced = {"generator": {"model": "banana", "longest_side": 32}}
        roles = provider_roles(server, "gemini", Home("memory://providers"), reduced)
        asyncio.run(roles.generator.generate(GOAL, [EncodedImage.white((64, 32))], 1))
        _, (small,) = gemini_parts(server.bodies[2]["contents"])
    assert first.image.size == second.image.size and first != second
    texts, received = gemini_parts(body["contents"])
    assert [image.sha256 for image in received] == [each.sha256 for each in (*whites, first)]
    assert texts == [edit]
    config = body["generationConfig"]
    assert (config["responseModalities"], config["seed"]) == (["IMAGE"], 2)
    assert small.image.size == (32, 16)


def test_an_image_is_reduced_once_for_the_same_limits_while_it_is_in_use():
    image, small = EncodedImage.white((64, 48)), EncodedImage.white((16, 16))
    reduced = agents._reduce(image, None, 32)
    assert reduced.image.size == (32, 24)
    assert agents._reduce(EncodedImage(image.data), None, 32) is reduced
    assert agents._reduce(image, None, 16).image.size == (16, 12)
    assert agents._reduce(small, None, 32) is small
    own = EncodedImage.of(Image.new("RGB", (40, 40), "red"))
    agents._reduce(own, (9, 100), None)
    forgotten = weakref.ref(own)
    del own
    assert forgotten() is None


def test_an_unreadable_answer_is_requested_once_more(backend):
    with provider() as server:
        server.scripts = ["garble"]
        answer, usage = plan(build_roles(server, backend))
        first, second = server.bodies
    assert any("flower" in step.prompt for step in answer.steps) and answer.reasoning
    assert (usage.retries, usage.input_tokens, usage.output_tokens) == (1, 2000, 200)
    assert "cannot be read" not in str(first) and "cannot be read" in str(second)
    assert is_schema_enforced(first)


def is_schema_enforced(body):
    return "response_format" in body or "responseJsonSchema" in str(body)


def test_json_inside_prose_and_code_fences_is_parsed(backend):
    answer = '{"reasoning": "r", "previous_step_success": true, "refine_prompt": "x",}'
    fenced = f"Here:\n```json\n{answer}\n```"
    with provider() as server:
        server.scripts = [fenced]
        roles = build_roles(server, backend)
        verdict = asyncio.run(roles.critic.judge(None, EncodedImage.white((8, 8)), GOAL, ""))
    assert verdict.accepted
    assert verdict.refined_prompt == ""


def test_faults_become_errors(backend):
    two_attempts = "m-1 gave no usable answer in two attempts"
    with provider() as server:
        roles = build_roles(server, backend, seconds=2)
        for faults, error, message in (
            (["garble", "garble"], UnusableAnswerError, two_attempts),
            (["refuse", "refuse"], UnusableAnswerError, "m-1 refuses: "),
            (["error"], RetryableError, "500"),
            (["reset"], NoAnswerError, "no connection"),
            (["hang"], NoAnswerError, "no connection"),
            (["cut"], NoAnswerError, "unreadable answer"),
            (["empty"], RetryableError, "an answer without c"),
        ):
            server.scripts = list(faults)
            with pytest.raises(error, match=message):
                plan(roles)
    with pytest.raises(RetryableError, match="no connection") as raised:  # the server has ended
        plan(roles)
    assert not isinstance(raised.value, NoAnswerError), "what was never sent is not billed"


def test_a_throttled_call_waits_for_retry_after(backend):
    with provider(FaultSchedule(retry_after=0.3)) as server:
        server.scripts = ["throttle", "throttle"]
        answer, usage = plan(build_roles(server, backend))
    assert answer.steps
    assert usage.retries == 2
    assert server.outcomes == {"throttle": 2, "ok": 1}


def test_a_wrong_key_stops_the_run_and_a_missing_one_is_an_error_before(backend, monkeypatch):
    monkeypatch.setenv("TEST_KEY", "wrong")
    with provider() as server:
        with pytest.raises(BackendError) as raised:
            plan(build_roles(server, backend))
        monkeypatch.delenv("TEST_KEY")
        with pytest.raises(BackendError, match="TEST_KEY is not set"):
            build_roles(server, backend)
    assert "TEST_KEY" in str(raised.value) and "wrong" not in str(raised.value)


def test_agents_with_tags_answer_like_trained_agents():
    answer = '{"previous_step_success": false, "refine_prompt": "again"}'
    with provider() as server:
        server.scripts = [f"<think>no flower</think>\n<answer>{answer}</answer>"]
        roles = build_roles(server, "openai", agent={"form": "tags"})
        verdict = asyncio.run(roles.critic.judge(None, EncodedImage.white((8, 8)), GOAL, ""))
        (body,) = server.bodies
    assert (verdict.accepted, verdict.refined_prompt) == (False, "again")
    assert verdict.reasoning == "no flower"
    assert len(body["messages"]) == 1
    assert not is_schema_enforced(body)


def test_settings_that_answers_depend_on_are_in_the_model_name():
    brief = {"agent_prompts": {"critic": "critic-brief"}}
    elsewhere = {"endpoints": [{"url": "http://127.0.0.1:9/v1"}]}
    changes = ({}, {"temperature": 1}, {"max_tokens": 9}, brief, elsewhere)
    names = [AgentModel(**AGENT | change).identity for change in changes]
    assert len(set(names)) == 4 and names[0] == names[-1]
