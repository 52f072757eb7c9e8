"""What a killed process leaves of its requests: one row each, every call in the ledger."""

import asyncio
import multiprocessing
import os
import signal
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import pytest

from inference.events import ImageGenerated, PlanReady, RunTerminated, TrajectoryFinished
from inference.generation import generation_sink
from inference.generation.requests import GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.settings import Limits
from schemas.generations import GENERATIONS
from schemas.trajectories import MODEL_CALLS
from tests.inference.scripted_world import ScriptedPlanner, plan, roles
from warehouse import Home, sql
from warehouse.sql import query

LIMITS = Limits(backoff_seconds=0, tries=1)
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.inference.generation.test_kills"])


def resolved():
    return roles(planner=ScriptedPlanner(answer=lambda request: plan("draw a cat", "add a hat")))


async def run(runner, request, until=None):
    """Run a request to its end, or kill this process at an event."""
    async with aclosing(runner.run(request, resolved())) as events:
        async for event in events:
            if until and isinstance(event, until):
                os.kill(os.getpid(), signal.SIGKILL)


async def run_all(folder, requests, killed_at, flushed):
    async with GenerationRunner(Home(folder), LIMITS) as runner:
        for number, request in enumerate(requests):
            if number == flushed:
                await runner.flush()
            last = number == len(requests) - 1
            await run(runner, request, killed_at if last else None)
        os.kill(os.getpid(), signal.SIGKILL)


def start(*arguments):
    asyncio.run(run_all(*arguments))


def start_and_die_removing(name, *arguments):
    """Kill this process before it removes rows of a table from the lake."""
    remove_rows = generation_sink._remove_rows

    def remove_or_die(lake, changed, *others):
        if changed.name == name:
            os.kill(os.getpid(), signal.SIGKILL)
        remove_rows(lake, changed, *others)

    generation_sink._remove_rows = remove_or_die
    start(*arguments)


def killed(folder, requests, killed_at=None, flushed=0, removing=None):
    """Run requests in a process that is killed at an event of the last one, or after it."""
    target = partial(start_and_die_removing, removing) if removing else start
    process = PROCESSES.Process(target=target, args=(folder, requests, killed_at, flushed))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


async def recovered(home, *requests):
    """Status by request, once the next process has started and run some again."""
    async with GenerationRunner(home, LIMITS) as runner:
        for request in requests:
            await run(runner, request)
    calls = "(select count(*) - count(distinct call_id) from model_calls) repeated"
    rows = query(f"select text, status, {calls} from generations order by text", home)
    assert rows.text.is_unique and not list((home.local / "requests").iterdir())
    assert not rows.repeated.any()
    return dict(zip(rows.text, rows.status, strict=True))


@pytest.mark.parametrize("flushed", [0, 1])
async def test_rows_of_finished_requests_reach_the_lake_after_a_kill(tmp_path, flushed):
    home, requests = Home(tmp_path), [GenerationRequest(text) for text in "abc"]
    killed(tmp_path, requests, flushed=flushed)
    assert await recovered(home) == dict.fromkeys("abc", "complete")
    assert await recovered(home) == dict.fromkeys("abc", "complete")  # once
    counts = "select count(*) n from attempts join generations using (trajectory_id)"
    assert query(counts, home).n[0] == 6 and len(query("from model_calls", home)) == 15
    assert len(query("from plans join generations using (plan_id)", home)) == 6


async def test_running_requests_are_interrupted_with_their_calls(tmp_path):
    home = Home(tmp_path)
    requests = [GenerationRequest("a"), GenerationRequest("b", key="mine", channel="service")]
    killed(tmp_path, requests, killed_at=ImageGenerated, flushed=1)
    assert await recovered(home) == {"a": "complete", "b": "interrupted"}
    row = query("from generations where text = 'b'", home).iloc[0]
    assert (row.channel, row.planner, row.attempts) == ("service", "scripted/1", 1)
    assert (row.prompt_id, row.request_key) == (requests[1].prompt_id, "mine")
    assert len(query("from model_calls", home)) == 5 + 2
    assert await recovered(home, replace(requests[1], resumes=True)) == {
        "a": "complete",
        "b": "complete",
    }
    assert len(query("from model_calls", home)) == 10


async def test_a_kill_before_the_first_call_leaves_one_row(tmp_path):
    home, request = Home(tmp_path), GenerationRequest("a", key="mine")
    killed(tmp_path, [request], killed_at=PlanReady)
    home.journal("generations", request.generation_id).remove()  # as if it had come earlier
    assert await recovered(home) == {"a": "interrupted"}
    again = replace(request, resumes=True)
    killed(tmp_path, [again], killed_at=PlanReady)
    assert await recovered(home) == {"a": "interrupted"}
    assert await recovered(home, again) == {"a": "complete"}


async def test_a_request_that_had_ended_and_runs_again_has_one_row(tmp_path):
    """It was killed after its rows were logged, and before its client was told."""
    home, request = Home(tmp_path), GenerationRequest("a", key="mine")
    killed(tmp_path, [GenerationRequest("b"), request])
    assert await recovered(home) == {"a": "complete", "b": "complete"}
    again = replace(request, resumes=True)
    killed(tmp_path, [again], killed_at=ImageGenerated)
    assert (await recovered(home))["a"] == "interrupted"
    killed(tmp_path, [again], killed_at=TrajectoryFinished)  # its client may have been told
    assert (await recovered(home))["a"] == "complete"
    assert await recovered(home, again) == {"a": "complete", "b": "complete"}


@pytest.mark.parametrize("table", [MODEL_CALLS, GENERATIONS])
async def test_a_kill_while_earlier_rows_are_removed_counts_every_call_once(tmp_path, table):
    home, request = Home(tmp_path), GenerationRequest("a", key="mine")
    killed(tmp_path, [GenerationRequest("b"), request])
    assert await recovered(home) == {"a": "complete", "b": "complete"}
    again = replace(request, resumes=True)
    killed(tmp_path, [again], removing=table.name)
    assert await recovered(home) == {"a": "interrupted", "b": "complete"}
    assert len(query("from model_calls", home)) == 10
    assert await recovered(home, again) == {"a": "complete", "b": "complete"}
    assert len(query("from model_calls", home)) == 10


async def test_what_was_deleted_stays_deleted_after_a_kill(tmp_path):
    home, request = Home(tmp_path), GenerationRequest("a")
    killed(tmp_path, [request])
    async with GenerationRunner(home, LIMITS) as runner:
        await runner.erase(request.generation_id)
    assert await recovered(home) == {} and len(query("from model_calls", home)) == 5


def accept_and_die(folder, requests):
    runner = GenerationRunner(Home(folder), LIMITS)
    for request in requests:
        runner.accept(request)
    os.kill(os.getpid(), signal.SIGKILL)


async def test_requests_that_wait_have_a_row_after_a_kill(tmp_path, monkeypatch):
    """However many there are, the lake is searched for rows of earlier runs once."""
    home = Home(tmp_path)
    requests = [GenerationRequest(f"{number:02}", key="mine") for number in range(40)]
    killed(tmp_path, requests[:2], killed_at=ImageGenerated)
    assert await recovered(home) == {"00": "complete", "01": "interrupted"}
    requests = [replace(each, resumes=True) for each in requests[:2]] + requests[2:]
    process = PROCESSES.Process(target=accept_and_die, args=(tmp_path, requests))
    process.start()
    process.join(120)
    queries = []
    run_query = sql.run_query
    monkeypatch.setattr(sql, "run_query", lambda *given: queries.append(1) or run_query(*given))
    runner = GenerationRunner(home, LIMITS)
    runner._recover()
    assert len(queries) == 1
    monkeypatch.undo()
    texts = [each.text for each in requests]
    assert await recovered(home) == dict.fromkeys(texts, "interrupted")
    assert len(query("from model_calls", home)) == 5 + 2
    assert (await recovered(home, replace(requests[1], resumes=True)))["01"] == "complete"
    assert len(query("from model_calls", home)) == 5 + 5


async def test_a_request_that_is_cancelled_as_it_begins_again_keeps_its_calls(
    tmp_path, monkeypatch
):
    """While the rows of its earlier run are being deleted."""
    home, request = Home(tmp_path), GenerationRequest("a", key="mine")
    killed(tmp_path, [request], killed_at=ImageGenerated)
    again = replace(request, resumes=True)
    async with GenerationRunner(home, LIMITS) as runner:
        loop, removing = asyncio.get_running_loop(), asyncio.Event()
        remove = generation_sink._remove_from_lake

        def announce_and_remove(*given):
            loop.call_soon_threadsafe(removing.set)
            remove(*given)

        monkeypatch.setattr(generation_sink, "_remove_from_lake", announce_and_remove)
        runner.accept(again)
        task = asyncio.create_task(run(runner, again))
        await removing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        runner.end_waiting(again, RunTerminated("cancelled", "it was cancelled"))
    assert await recovered(home) == {"a": "interrupted"}
    assert len(query("from model_calls", home)) == 2


async def test_logs_of_processes_that_live_are_left_alone(tmp_path):
    home = Home(tmp_path)
    async with GenerationRunner(home, LIMITS) as living:
        events = living.run(GenerationRequest("a"), resolved())
        async for event in events:
            if isinstance(event, PlanReady):
                break
        async with GenerationRunner(home, LIMITS):
            pass
        async for _ in events:
            pass
    assert await recovered(home) == {"a": "complete"}
