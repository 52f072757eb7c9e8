"""Planner, critic, scorer and generator at a provider, through the official clients."""

import asyncio

import pytest

from inference.engine.usage import Usage, metered
from inference.roles import BackendError, PlanRequest, RetryableError, UnusableAnswerError
from tests.inference.backends.providers.answer_shapes import gemini_parts
from tests.inference.backends.providers.faulty_provider import Weather, provider
from tests.inference.backends.providers.provider_roles import AGENT, cast, drawn_by
from warehouse import EncodedImage, Home

REQUEST = PlanRequest("Show how to grow a red flower")
GOAL = "Draw a meadow with a red flower at the bottom center."


def players(server, backend, agent=None, seconds=20, **more):
    """All agents asked in the same way; the scorer never in tags."""
    agent = AGENT | (agent or {})
    scorer = {key: value for key, value in agent.items() if key != "form"}
    agents = {"planner": agent, "critic": agent, "scorer": scorer} | drawn_by(backend)
    return cast(server, backend, Home("memory://providers"), agents, more, timeout_seconds=seconds)


def plan(roles):
    """A plan, and what it took."""
    usage = Usage()

    async def ask():
        with metered(usage):
            return await roles.planner.plan(REQUEST)

    return asyncio.run(ask()), usage


def test_a_plan_comes_back(backend):
    with provider() as server:
        answer, usage = plan(players(server, backend))
    assert [step.step_number for step in answer.steps] == list(range(1, len(answer.steps) + 1))
    assert any("flower" in step.prompt for step in answer.steps)
    assert answer.reasoning
    assert (usage.input_tokens, usage.output_tokens, usage.retries) == (1000, 100, 0)


def test_a_role_may_be_asked_elsewhere():
    """Two servers of one model each play two roles of one backend."""
    with provider() as first, provider() as second:
        elsewhere = AGENT | {"endpoints": [{"url": f"{second.url}/v1", "key": "TEST_KEY"}]}
        home = Home("memory://providers")
        roles = cast(first, "openai", home, {"planner": AGENT, "critic": elsewhere})

        async def both():
            await roles.planner.plan(REQUEST)
            await roles.critic.judge(None, EncodedImage.white((96, 96)), GOAL, "")

        asyncio.run(both())
    assert [len(server.bodies) for server in (first, second)] == [1, 1]


def test_pictures_go_in_where_they_belong(backend):
    drawn = EncodedImage.white((96, 96))

    async def both(roles):
        verdict = await roles.critic.judge(None, drawn, GOAL, "")
        return verdict, await roles.scorer.score(None, drawn, GOAL)

    with provider() as server:
        verdict, score = asyncio.run(both(players(server, backend)))
        content = server.bodies[0]
    assert not verdict.accepted
    assert verdict.refined_prompt
    assert score.edit_success < 5
    kinds = kinds_of(content, backend)
    assert kinds == ["picture", "picture", "text"]


def kinds_of(body, backend):
    if backend == "openai":
        parts = body["messages"][-1]["content"]
        return ["text" if part["type"] == "text" else "picture" for part in parts]
    return ["text" if "text" in part else "picture" for part in body["contents"][-1]["parts"]]


def test_a_picture_is_drawn_and_edited():
    async def draw(roles):
        first = await roles.generator.generate(GOAL, (), 1)
        edit = "Add a blue bird at the top left. Keep everything else unchanged."
        return first, await roles.generator.generate(edit, (first,), 2)

    with provider() as server:
        first, second = asyncio.run(draw(players(server, "gemini")))
        config = server.bodies[1]["generationConfig"]
    assert first.image.size == second.image.size
    assert first != second
    assert config["responseModalities"] == ["IMAGE"]
    assert config["seed"] == 2


def test_all_pictures_that_are_given_are_sent_in_their_order():
    given = [EncodedImage.white((side, 16)) for side in (16, 24, 32)]
    with provider() as server:
        asyncio.run(players(server, "gemini").generator.generate(GOAL, given, 1))
        texts, pictures = gemini_parts(server.bodies[0]["contents"])
    assert [picture.sha256 for picture in pictures] == [picture.sha256 for picture in given]
    assert texts == [GOAL]


@pytest.mark.parametrize("form", ["schema", "json"])
def test_an_answer_that_cannot_be_read_is_asked_for_once_more(backend, form):
    with provider() as server:
        server.scripts = ["garble"]
        answer, usage = plan(players(server, backend, agent={"form": form}))
        first, second = server.bodies
    assert answer.steps
    assert usage.retries == 1
    assert usage.input_tokens == 2000
    said = "cannot be read"
    assert said not in str(first)
    assert said in str(second)
    assert ("schema" in str(first).lower()) and (form == "schema") == is_enforced(first)


def is_enforced(body):
    return "response_format" in body or "responseJsonSchema" in str(body)


def test_json_with_prose_and_fences_around_it_is_read(backend):
    answer = '{"reasoning": "r", "previous_step_success": true, "refine_prompt": "x",}'
    fenced = f"Here:\n```json\n{answer}\n```"
    with provider() as server:
        server.scripts = [fenced]
        roles = players(server, backend)
        verdict = asyncio.run(roles.critic.judge(None, EncodedImage.white((8, 8)), GOAL, ""))
    assert verdict.accepted
    assert verdict.refined_prompt == ""


@pytest.mark.parametrize(
    ("weather", "error", "said"),
    [
        (["garble", "garble"], UnusableAnswerError, "m-1 gave no usable answer, asked twice"),
        (["refuse", "refuse"], UnusableAnswerError, "m-1 refuses: "),
        (["error"], RetryableError, "500"),
        (["reset"], RetryableError, "no connection"),
        (["hang"], RetryableError, "no connection"),
        (["cut"], RetryableError, "unreadable answer"),
        (["empty"], RetryableError, "an answer without c"),
    ],
)
def test_what_bad_weather_means(backend, weather, error, said):
    with provider() as server:
        server.scripts = list(weather)
        with pytest.raises(error, match=said):
            plan(players(server, backend, seconds=2))


def test_a_throttled_call_waits_as_long_as_asked(backend):
    with provider(Weather(retry_after=0.3)) as server:
        server.scripts = ["throttle", "throttle"]
        answer, usage = plan(players(server, backend))
    assert answer.steps
    assert usage.retries == 2
    assert server.met == {"throttle": 2, "fine": 1}


def test_a_refused_key_stops_the_run_and_is_not_quoted(backend, monkeypatch):
    monkeypatch.setenv("TEST_KEY", "wrong")
    with provider() as server, pytest.raises(BackendError) as raised:
        plan(players(server, backend))
    assert "TEST_KEY" in str(raised.value)
    assert "wrong" not in str(raised.value)


def test_a_missing_key_is_missed_before_any_call(backend, monkeypatch):
    monkeypatch.delenv("TEST_KEY")
    with provider() as server, pytest.raises(BackendError, match="TEST_KEY is not set"):
        players(server, backend)


def test_agents_in_tags_answer_as_trained_ones_do():
    said = '{"previous_step_success": false, "refine_prompt": "again"}'
    with provider() as server:
        server.scripts = [f"<think>no flower</think>\n<answer>{said}</answer>"]
        roles = players(server, "openai", agent={"form": "tags"})
        verdict = asyncio.run(roles.critic.judge(None, EncodedImage.white((8, 8)), GOAL, ""))
        (body,) = server.bodies
    assert (verdict.accepted, verdict.refined_prompt) == (False, "again")
    assert verdict.reasoning == "no flower"
    assert len(body["messages"]) == 1
    assert not is_enforced(body)


def test_another_way_of_asking_is_another_model():
    def name(**agent):
        with provider() as server:
            return players(server, "openai", agent=agent).critic.model

    names = {
        name(),
        name(temperature=1),
        name(max_tokens=9),
        name(agent_prompts={"critic": "critic-brief"}),
    }
    assert len(names) == 4
    assert name() in names
