"""Users' requests: their events, rows, journals, and how they are resumed and interrupted."""

import asyncio
import threading

import pytest

from inference.backends.sketch.backend import SketchGenerator
from inference.events import (
    ImageGenerated,
    PlanReady,
    RequestUnderstood,
    TrajectoryFailed,
    TrajectoryFinished,
)
from inference.generation.generation_sink import LakeSink
from inference.generation.requests import GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.generation.trajectory_view import TrajectoryView
from inference.roles import BackendError, UnusableAnswerError
from inference.settings import Limits
from schemas.generations import GENERATIONS
from schemas.trajectories import ATTEMPTS, MODEL_CALLS
from tests.inference.scripted_world import (
    ScriptedCritic,
    ScriptedGenerator,
    ScriptedPlanner,
    plan,
    reject,
    roles,
    tiny_image,
)
from warehouse import EncodedImage, Home, Lake
from warehouse.sql import query
from warehouse.views import connect

LIMITS = Limits(backoff_seconds=0, tries=1)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def two_steps(request):
    return plan("draw a cat", "add a hat")


def resolved(**replaced):
    return roles(**({"planner": ScriptedPlanner(answer=two_steps)} | replaced))


async def run(home, resolved_roles, request=None):
    request = request or GenerationRequest("a cat")
    async with GenerationRunner(home, LIMITS) as runner:
        return [event async for event in runner.run(request, resolved_roles)]


def generations(home):
    return query("select * from generations order by started_at", home)


async def test_a_request_is_events_and_rows(home):
    """Views show its rows, and the lineage does not see them."""
    critic = ScriptedCritic(verdicts={"add a hat": [reject("add a RED hat")]})
    image = tiny_image("given")
    request = GenerationRequest("a cat", (image,), key="mine")
    events, state = await run(home, resolved(critic=critic), request), TrajectoryView("a cat")
    for event in events:
        state.note(event)
    assert [step.text for step in state.steps] == ["words 1", "words 2"]
    assert [len(step.attempts) for step in state.steps] == [1, 2]
    assert len(state.images) == 2 and state.ending.status == "complete"
    assert isinstance(events[0], PlanReady) and isinstance(events[-1], TrajectoryFinished)
    row = generations(home).iloc[0]
    assert (row.status, row.steps, row.attempts, row.channel) == ("complete", 2, 3, "command")
    assert (row.request_key, row.text, row.wasted_draws) == ("mine", "a cat", 0)
    assert row.input_images.tolist() == [image.sha256] and home.images.get(image.sha256) == image
    joined = query(
        "select step_number, iteration, a.prompt, p.instruction from generations "
        "join attempts a using (trajectory_id) "
        "join plans p using (plan_id, step_number) order by all",
        home,
    )
    assert joined.prompt.tolist() == ["draw a cat", "add a hat", "add a RED hat"]
    calls = query("select role, count(*) n from model_calls group by role order by role", home)
    made = dict(zip(calls.role, calls.n, strict=True))
    assert made == {"critic": 3, "generator": 3, "planner": 1}
    assert home.lake.partitions(ATTEMPTS) == [] and not home.lake.read(ATTEMPTS).num_rows
    with connect(home, read_only=False, requests=False) as connection:
        assert connection.sql("select count(*) from attempts").fetchall() == [(0,)]


async def test_equal_requests_give_equal_images_and_rows_of_their_own(home):
    first = await run(home, resolved(), GenerationRequest("a cat"))
    second = await run(home, resolved(), GenerationRequest("a cat"))
    images = [[e.image for e in run if isinstance(e, ImageGenerated)] for run in (first, second)]
    assert images[0] == images[1]
    unique = query(
        "select count(distinct trajectory_id) t, count(distinct plan_id) p from plans "
        "join trajectories using (plan_id)",
        home,
    ).iloc[0]
    assert (unique.t, unique.p) == (2, 2)


async def test_a_resumed_request_has_one_row_and_its_calls_count_once(home):
    def fail(prompt):
        if prompt == "add a hat":
            raise ConnectionError("gone")

    request = GenerationRequest("a cat", key="mine")
    async with GenerationRunner(home, LIMITS) as runner:
        for _ in range(2):
            resolved_roles = resolved(generator=ScriptedGenerator(fail=fail))
            async for _ in runner.run(request, resolved_roles):
                pass
            await runner.flush()
            assert generations(home).status.tolist() == ["failed"]
        async for _ in runner.run(request, resolved()):
            pass
    assert generations(home).status.tolist() == ["complete"]
    sums = "select count(*) n, count(distinct call_id) ids, count(error) failed from model_calls"
    calls = query(sums, home).iloc[0]
    assert calls.n == calls.ids == 7 and calls.failed == 2  # plan, two pictures, two verdicts
    assert len(query("from attempts", home)) == 2


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

    events = await run(home, resolved(planner=ScriptedPlanner(answer=fail)))
    assert isinstance(events[-1], TrajectoryFailed) and events[-1].refused == refused
    row = generations(home).iloc[0]
    assert (row.status, row.steps) == (status, 0) and row.error == events[-1].reason


async def test_an_image_that_cannot_be_decoded_is_refused(home):
    events = await run(
        home, resolved(), GenerationRequest("on from here", (EncodedImage(b"no picture"),))
    )
    assert events[-1].refused and "cannot be decoded" in events[-1].reason


async def test_closing_the_events_cancels(home):
    async with GenerationRunner(home, LIMITS) as runner:
        events = runner.run(GenerationRequest("a cat"), resolved())
        async for event in events:
            if isinstance(event, ImageGenerated):
                break
        await events.aclose()
        assert len(asyncio.all_tasks()) == 2  # this test and the flush task
    assert generations(home).status.tolist() == ["cancelled"]


async def test_the_sink_starts_a_partition_when_one_is_full(home, monkeypatch):
    monkeypatch.setattr("inference.generation.generation_sink._REQUESTS_PER_PARTITION", 2)
    async with GenerationRunner(home, LIMITS) as runner:
        for number in range(5):
            async for _ in runner.run(GenerationRequest(f"cat {number}"), resolved()):
                pass
            if number % 2:
                await runner.flush()
    counts = query("select shard, count(*) n from generations group by shard", home)
    assert sorted(counts.n) == [1, 2, 2]
    files = list((home.local / "lake" / "generations").glob("_requests-*"))
    assert len(files) == 3


async def test_rows_that_cannot_be_written_are_written_later(home, monkeypatch):
    sink, failing = LakeSink(home), [True]
    write = Lake.write

    def full_disk(*arguments):
        if failing:
            raise OSError("no space left")
        return write(*arguments)

    monkeypatch.setattr(Lake, "write", full_disk)
    async with GenerationRunner(home, LIMITS) as runner:
        runner._sink = sink
        async for _ in runner.run(GenerationRequest("a cat"), resolved()):
            pass
        with pytest.raises(OSError, match="no space"):
            await sink.flush()
        failing.clear()
    await sink.flush()
    assert len(query("from generations", home)) == 1 and GENERATIONS.name == "generations"


async def test_a_flush_that_is_cancelled_does_not_overwrite_a_later_one(home, monkeypatch):
    """The runner ends while its periodic flush writes the rows of the first request alone."""
    monkeypatch.setattr("inference.generation.generation_sink._FLUSH_SECONDS", 0)
    write, begun, newer = Lake.write, threading.Event(), threading.Event()

    def slow_at_first(lake, table, *arguments):
        if table is MODEL_CALLS and not begun.is_set():
            begun.set()
            newer.wait(0.5)
        result = write(lake, table, *arguments)
        if table is MODEL_CALLS:
            newer.set()
        return result

    monkeypatch.setattr(Lake, "write", slow_at_first)
    async with GenerationRunner(home, LIMITS) as runner:
        for text in ("a cat", "a dog"):
            async for _ in runner.run(GenerationRequest(text), resolved()):
                pass
            await asyncio.to_thread(begun.wait)
    assert len(query("from generations", home)) == 2
    assert len(query("from model_calls", home)) == 10


async def test_a_plan_that_does_not_lead_to_what_is_asked_for_is_said_to(home):
    planner = ScriptedPlanner(answer=lambda _: plan("Draw a meadow with a cat and a sun."))
    said = []
    for text in ("Draw a cat and a sun on a meadow", "a cat without a sun"):
        request = GenerationRequest(text)
        events = await run(home, roles(planner=planner, generator=SketchGenerator()), request)
        said.append([e.scope.remarks for e in events if isinstance(e, RequestUnderstood)])
    assert said == [[()], [(), ("The plan's pictures do not end as requested.",)]]
