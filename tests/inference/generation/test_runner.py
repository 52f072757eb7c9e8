"""Users' requests through the one door: events, rows, journals, what the lineage sees of them."""

import asyncio
from datetime import UTC, datetime

import pytest

from inference.events import ImageGenerated, PlanReady, TrajectoryFailed, TrajectoryFinished
from inference.generation.agent_resolver import ResolvedRoles
from inference.generation.generation_sink import LakeSink
from inference.generation.generation_state import GenerationState
from inference.generation.recovery import InterruptedRequest
from inference.generation.requests import GenerationOptions, GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.roles import BackendError, UnusableAnswerError
from inference.settings import Limits
from schemas.generations import GENERATIONS
from schemas.trajectories import ATTEMPTS
from tests.inference.scripted_world import (
    ScriptedCritic,
    ScriptedGenerator,
    ScriptedPlanner,
    picture,
    plan,
    reject,
    roles,
)
from warehouse import EncodedImage, Home, connect, query

LIMITS = Limits(backoff_seconds=0, tries=1)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def two_steps(request):
    return plan("draw a cat", "add a hat")


def players(**given):
    return ResolvedRoles(roles(**({"planner": ScriptedPlanner(answer=two_steps)} | given)))


async def told(home, cast, request=None):
    async with GenerationRunner(home, LIMITS) as teller:
        return [event async for event in teller.tell(request or GenerationRequest("a cat"), cast)]


def generations(home):
    return query("select * from generations order by started_at", home)


async def test_a_story_is_events_and_rows(home):
    critic = ScriptedCritic(verdicts={"add a hat": [reject("add a RED hat")]})
    events = await told(home, players(critic=critic), GenerationRequest("a cat", key="mine"))
    assert isinstance(events[0], PlanReady) and isinstance(events[-1], TrajectoryFinished)
    row = generations(home).iloc[0]
    assert (row.status, row.steps, row.attempts, row.door) == ("complete", 2, 3, "command")
    assert (row.request_key, row.text, row.wasted_draws) == ("mine", "a cat", 0)
    joined = query(
        "select step_number, iteration, a.prompt, p.instruction from generations "
        "join attempts a using (trajectory_id) "
        "join plans p using (plan_id, step_number) order by all",
        home,
    )
    assert joined.prompt.tolist() == ["draw a cat", "add a hat", "add a RED hat"]
    calls = query("select role, count(*) n from model_calls group by role order by role", home)
    assert dict(zip(calls.role, calls.n, strict=True)) == {
        "critic": 3,
        "generator": 3,
        "planner": 1,
    }


async def test_views_show_requests_and_the_lineage_does_not_see_them(home):
    await told(home, players())
    assert home.lake.partitions(ATTEMPTS) == [] and not home.lake.read(ATTEMPTS).num_rows
    assert len(query("from attempts", home)) == 2
    with connect(home, read_only=False, requests=False) as connection:
        assert connection.sql("select count(*) from attempts").fetchall() == [(0,)]


async def test_equal_requests_are_told_alike_and_kept_apart(home):
    first = await told(home, players(), GenerationRequest("a cat"))
    second = await told(home, players(), GenerationRequest("a cat"))
    pictures = [
        [e.image for e in run if isinstance(e, ImageGenerated)] for run in (first, second)
    ]
    assert pictures[0] == pictures[1]
    unique = query(
        "select count(distinct trajectory_id) t, count(distinct plan_id) p from plans "
        "join trajectories using (plan_id)",
        home,
    ).iloc[0]
    assert (unique.t, unique.p) == (2, 2)


async def test_another_seed_is_another_story(home):
    runs = [
        await told(home, players(), GenerationRequest("a cat", rules=GenerationOptions(seed=seed)))
        for seed in (1, 2)
    ]
    assert len({e.seed for run in runs for e in run if isinstance(e, ImageGenerated)}) == 4


async def test_the_same_request_again_repeats_no_finished_call(home):
    class Dies(ScriptedGenerator):
        async def generate(self, prompt, images, seed):
            if len(self.calls) == 1:
                raise ConnectionError("gone")
            return await super().generate(prompt, images, seed)

    request = GenerationRequest("a cat")
    planner = ScriptedPlanner(answer=two_steps)
    events = await told(home, players(planner=planner, generator=Dies()), request)
    assert isinstance(events[-1], TrajectoryFailed) and not events[-1].refused
    generator = ScriptedGenerator()
    events = await told(home, players(planner=planner, generator=generator), request)
    assert isinstance(events[-1], TrajectoryFinished)
    assert len(planner.calls) == 1 and [call[0] for call in generator.calls] == ["add a hat"]


async def test_a_request_told_again_has_one_row_and_its_calls_count_once(home):
    def fail(prompt):
        if prompt == "add a hat":
            raise ConnectionError("gone")

    request = GenerationRequest("a cat", key="mine")
    async with GenerationRunner(home, LIMITS) as teller:
        for _ in range(2):
            cast = players(generator=ScriptedGenerator(fail=fail))
            async for _ in teller.tell(request, cast):
                pass
            await teller.flush()
            assert generations(home).status.tolist() == ["failed"]
        async for _ in teller.tell(request, players()):
            pass
    assert generations(home).status.tolist() == ["complete"]
    sums = "select count(*) n, count(distinct call_id) ids, count(error) failed from model_calls"
    calls = query(sums, home).iloc[0]
    assert calls.n == calls.ids == 7 and calls.failed == 2  # plan, two pictures, two verdicts
    assert len(query("from attempts", home)) == 2


async def test_what_a_killed_process_paid_for_is_kept(home):
    request = GenerationRequest("a cat", key="mine", door="service")
    async with GenerationRunner(home, LIMITS) as killed:
        killed._archive.add = lambda *rows: None  # as if it had not come to that
        async for event in killed.tell(request, players()):
            if isinstance(event, ImageGenerated):
                break
    left = InterruptedRequest(
        request.generation_id,
        request.text,
        (),
        request.rules,
        "service",
        "mine",
        datetime.now(UTC),
    )
    async with GenerationRunner(home, LIMITS) as teller:
        teller.keep_interrupted(left)
        await teller.flush()
        row = generations(home).iloc[0]
        assert (row.status, row.door, row.planner) == ("interrupted", "service", "scripted/1")
        assert row.prompt_id == request.prompt_id and len(query("from model_calls", home)) >= 2
        async for _ in teller.tell(request, players()):
            pass
    assert generations(home).status.tolist() == ["complete"]
    calls = query("select count(*) n, count(distinct call_id) ids from model_calls", home).iloc[0]
    assert calls.n == calls.ids == 5


@pytest.mark.parametrize(
    ("error", "status", "refused"),
    [
        (UnusableAnswerError("nothing to draw"), "refused", True),
        (BackendError("no key"), "failed", False),
        (RuntimeError("a bug: secret-key"), "failed", False),
    ],
)
async def test_a_failure_is_the_last_event_and_a_row(home, error, status, refused):
    def fail(request):
        raise error

    events = await told(home, players(planner=ScriptedPlanner(answer=fail)))
    assert isinstance(events[-1], TrajectoryFailed) and events[-1].refused == refused
    row = generations(home).iloc[0]
    assert (row.status, row.steps) == (status, 0) and row.error == events[-1].reason


async def test_a_broken_picture_is_refused(home):
    events = await told(
        home, players(), GenerationRequest("on from here", (EncodedImage(b"no picture"),))
    )
    assert events[-1].refused and "cannot be decoded" in events[-1].reason


async def test_who_no_longer_listens_cancels(home):
    async with GenerationRunner(home, LIMITS) as teller:
        events = teller.tell(GenerationRequest("a cat"), players())
        async for event in events:
            if isinstance(event, ImageGenerated):
                break
        await events.aclose()
        assert len(asyncio.all_tasks()) == 2  # this one, and the one that flushes
    assert generations(home).status.tolist() == ["cancelled"]


async def test_given_pictures_are_kept(home):
    given = picture("given")
    await told(home, players(), GenerationRequest("on from here", (given,)))
    assert generations(home).input_images.iloc[0].tolist() == [given.sha256]
    assert home.images.get(given.sha256) == given


async def test_a_story_so_far_is_what_people_look_at(home):
    critic = ScriptedCritic(verdicts={"add a hat": [reject("add a RED hat")]})
    story = GenerationState("a cat")
    for event in await told(home, players(critic=critic)):
        story.note(event)
    assert [step.words for step in story.steps] == ["words 1", "words 2"]
    assert [len(step.refused) for step in story.steps] == [0, 1]
    assert len(story.pictures) == 2 and story.ending.status == "complete"


async def test_pages_of_the_archive_turn(home, monkeypatch):
    monkeypatch.setattr("inference.generation.generation_sink._REQUESTS_A_PAGE", 2)
    async with GenerationRunner(home, LIMITS) as teller:
        for number in range(5):
            async for _ in teller.tell(GenerationRequest(f"cat {number}"), players()):
                pass
            if number % 2:
                await teller.flush()
    counts = query("select shard, count(*) n from generations group by shard", home)
    assert sorted(counts.n) == [1, 2, 2]
    files = list((home.local / "lake" / "generations").glob("_requests-*"))
    assert len(files) == 3


async def test_an_archive_that_cannot_be_written_keeps_its_rows(home, monkeypatch):
    archive, failing = LakeSink(home), [True]
    write = home.lake.write

    def full_disk(*given):
        if failing:
            raise OSError("no space left")
        return write(*given)

    monkeypatch.setattr(home.lake, "write", full_disk)
    async with GenerationRunner(home, LIMITS) as teller:
        teller._archive = archive
        async for _ in teller.tell(GenerationRequest("a cat"), players()):
            pass
        with pytest.raises(OSError, match="no space"):
            await archive.flush()
        failing.clear()
    await archive.flush()
    assert len(query("from generations", home)) == 1 and GENERATIONS.name == "generations"
