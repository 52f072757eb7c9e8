"""Endpoints: load balancing, back-off, closing and waiting."""

import asyncio
import random
import statistics
from collections import Counter
from datetime import UTC, datetime

from inference.backends.providers import endpoints as module
from inference.backends.providers.endpoints import Endpoints
from inference.backends.providers.errors import (
    EndpointUnusableError,
    ThrottledError,
    parse_retry_after,
)
from inference.backends.providers.settings import EndpointSettings
from inference.calls.retry import RetryingCaller
from inference.roles import BackendError, RetryableError, UnusableAnswerError
from inference.settings import Limits


class Server:
    """A named client that counts its calls and raises the errors of its script."""

    def __init__(self, name, script=(), seconds=0.0):
        self.name, self.script, self.seconds = name, list(script), seconds
        self.calls = self.active = self.max_active = self.closed = 0

    async def call(self):
        self.calls += 1
        self.active += 1
        self.max_active = max(self.max_active, self.active)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.active -= 1
        if self.script:
            error = self.script.pop(0)
            if error:
                raise error
        return self.name

    async def close(self):
        self.closed += 1


def endpoints_of(*servers, concurrency=4):
    by_url = {server.name: server for server in servers}
    settings = [EndpointSettings(url=server.name, concurrency=concurrency) for server in servers]
    return Endpoints(settings, lambda endpoint: by_url[endpoint.url], Server.close)


def call_all(endpoints, times=1):
    """Names of the servers that answered, or errors, of so many calls at once."""

    async def gather():
        calls = [endpoints.call(Server.call) for _ in range(times)]
        return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run(gather())


def test_calls_go_to_the_endpoint_with_free_slots():
    slow, fast = Server("slow", seconds=0.05), Server("fast", seconds=0.01)
    answers = Counter(call_all(endpoints_of(slow, fast), 60))
    assert answers.total() == 60
    assert answers["fast"] > 2 * answers["slow"]
    assert slow.max_active <= 4
    assert fast.max_active <= 4


def test_a_throttled_call_goes_to_another_endpoint_or_returns_after_its_back_off():
    first, second = Server("first", [ThrottledError("", 60)]), Server("second")
    assert call_all(endpoints_of(first, second)) == ["second"]
    assert (first.calls, second.calls) == (1, 1)
    server = Server("one", [ThrottledError("", 0.05)])
    assert call_all(endpoints_of(server)) == ["one"]
    assert server.calls == 2
    server = Server("one", [ThrottledError("too many", 0)] * 100)
    (error,) = call_all(endpoints_of(server))
    assert isinstance(error, ThrottledError) and server.calls == module._MAX_THROTTLES


def test_two_429s_in_a_row_close_the_endpoint_for_all_calls():
    server = Server("one", [ThrottledError("", 0.2), ThrottledError("", 0.2)])

    async def calls():
        endpoints = endpoints_of(server)
        first = [asyncio.create_task(endpoints.call(Server.call)) for _ in range(2)]
        await asyncio.sleep(0.02)
        third = asyncio.create_task(endpoints.call(Server.call))
        await asyncio.sleep(0.1)
        before = server.calls
        await asyncio.gather(*first, third)
        return before

    assert asyncio.run(calls()) == 2
    assert server.calls == 5


def test_sporadic_429s_hardly_lower_the_load():
    rng = random.Random(1)
    script = [ThrottledError("", 0.01) if rng.random() < 0.1 else None for _ in range(400)]
    server = Server("one", script, seconds=0.005)

    async def calls():
        endpoints = endpoints_of(server, concurrency=16)
        loads = []

        async def sample():
            while True:
                await asyncio.sleep(0.005)
                loads.append(server.active)

        sampler = asyncio.create_task(sample())
        await asyncio.gather(*(endpoints.call(Server.call) for _ in range(350)))
        sampler.cancel()
        return loads

    assert statistics.median(asyncio.run(calls())) >= 12


def test_an_endpoint_that_accepts_fewer_calls_gets_fewer():
    class Limited(Server):
        throttled = 0

        async def call(self):
            if self.active >= 4:
                self.throttled += 1
                raise ThrottledError("", 0.01)
            return await super().call()

    server = Limited("one", seconds=0.005)
    assert call_all(endpoints_of(server, concurrency=64), 600).count("one") == 600
    assert server.throttled < 200


def test_a_failing_endpoint_is_closed_and_reopens(monkeypatch):
    monkeypatch.setattr(module, "_MAX_CLOSED_SECONDS", 0.2)
    broken = Server("broken", [RetryableError("down")] * 3, seconds=0.001)
    working = Server("working", seconds=0.001)

    async def phases():
        endpoints = endpoints_of(broken, working)
        while broken.calls < 3:
            await asyncio.gather(
                *(endpoints.call(Server.call) for _ in range(2)), return_exceptions=True
            )
        closed = [await endpoints.call(Server.call) for _ in range(5)]
        await asyncio.sleep(0.25)
        later = await asyncio.gather(*(endpoints.call(Server.call) for _ in range(40)))
        return closed, later

    closed, later = asyncio.run(phases())
    assert closed == ["working"] * 5
    assert "broken" in later


def test_an_unusable_endpoint_gets_no_more_calls():
    bad, good = Server("bad", [EndpointUnusableError("no quota")] * 9), Server("good")
    endpoints = endpoints_of(bad, good)
    assert set(call_all(endpoints, 5)) == {"good"}
    assert call_all(endpoints) == ["good"]
    worse = Server("worse", [EndpointUnusableError("401")] * 9)
    (error,) = call_all(endpoints_of(bad, worse))
    assert isinstance(error, BackendError)
    assert "bad: no quota" in str(error) and "worse: 401" in str(error)


def test_a_refusal_does_not_close_an_endpoint():
    server = Server("one", [UnusableAnswerError("no")] * 5)
    assert [str(error) for error in call_all(endpoints_of(server), 5)] == ["no"] * 5
    assert call_all(endpoints_of(server)) == ["one"]


def test_a_cancelled_call_passes_its_slot_on():
    server = Server("one", seconds=0.05)

    async def calls():
        endpoints = endpoints_of(server, concurrency=1)
        tasks = [asyncio.create_task(endpoints.call(Server.call)) for _ in range(4)]
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        tasks[2].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(calls())
    assert (answers[0], answers[3]) == ("one", "one")


def test_an_answer_is_read_without_a_slot():
    endpoints, answered = endpoints_of(Server("a")), asyncio.Event()
    caller = RetryingCaller(Limits(generator=1, tries=1, call_timeout_seconds=1))

    async def reads_for_long():
        answer = await endpoints.call(Server.call)
        await answered.wait()
        return answer

    async def reads_at_once():
        answer = await endpoints.call(Server.call)
        answered.set()
        return answer

    async def both():
        calls = (caller.call("generator", str, send) for send in (reads_for_long, reads_at_once))
        return [outcome.answer for outcome in await asyncio.gather(*calls)]

    assert asyncio.run(both()) == ["a", "a"]


def test_every_event_loop_has_its_own_clients():
    clients = []

    def connect(_):
        clients.append(Server("one"))
        return clients[-1]

    endpoints = Endpoints([EndpointSettings()], connect, Server.close)
    assert call_all(endpoints, 3) == call_all(endpoints, 3) == ["one"] * 3
    assert [(server.calls, server.closed) for server in clients] == [(3, 1), (3, 1)]


def test_retry_after():
    now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    seconds = {"3": 3, "0.5": 0.5, "-1": 0, "nan": None, "soon": None, None: None, "": None}
    for header, expected in seconds.items() | {("Thu, 01 Jan 2026 12:00:30 GMT", 30)}:
        assert parse_retry_after(header, now) == expected, header
