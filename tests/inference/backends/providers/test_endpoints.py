"""Endpoints: who is asked, who is left alone, and who waits."""

import asyncio
import random
import statistics
from collections import Counter

import pytest

from inference.backends.providers import endpoints as module
from inference.backends.providers.endpoints import Endpoints, EndpointSettings
from inference.backends.providers.errors import (
    EndpointUnusableError,
    ThrottledError,
    parse_retry_after,
)
from inference.roles import BackendError, RetryableError, UnusableAnswerError


class Server:
    """A client by name that counts its calls and raises what its script says."""

    def __init__(self, name, script=(), seconds=0.0):
        self.name, self.script, self.seconds = name, list(script), seconds
        self.calls = self.busy = self.busiest = self.closed = 0

    async def ask(self):
        self.calls += 1
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.busy -= 1
        if self.script:
            error = self.script.pop(0)
            if error:
                raise error
        return self.name

    async def close(self):
        self.closed += 1


def over(*servers, concurrency=4):
    by_url = {server.name: server for server in servers}
    settings = [EndpointSettings(url=server.name, concurrency=concurrency) for server in servers]
    return Endpoints(settings, lambda endpoint: by_url[endpoint.url], Server.close)


def asked(endpoints, times=1):
    """Who answered, or the errors, of so many calls at once."""

    async def all_at_once():
        calls = [endpoints.call(Server.ask) for _ in range(times)]
        return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run(all_at_once())


def test_calls_go_where_there_is_room():
    slow, fast = Server("slow", seconds=0.05), Server("fast", seconds=0.01)
    answers = Counter(asked(over(slow, fast), 60))
    assert answers.total() == 60
    assert answers["fast"] > 2 * answers["slow"]
    assert slow.busiest <= 4
    assert fast.busiest <= 4


def test_more_calls_than_slots_wait_in_line():
    server = Server("one", seconds=0.001)
    assert asked(over(server, concurrency=2), 50) == ["one"] * 50
    assert server.busiest == 2


def test_a_throttled_call_goes_elsewhere():
    first, second = Server("first", [ThrottledError("", 60)]), Server("second")
    assert asked(over(first, second)) == ["second"]
    assert (first.calls, second.calls) == (1, 1)


def test_a_throttled_call_comes_back_when_it_may():
    server = Server("one", [ThrottledError("", 0.05)])
    assert asked(over(server)) == ["one"]
    assert server.calls == 2


def test_two_429s_in_a_row_close_the_endpoint_for_everybody():
    server = Server("one", [ThrottledError("", 0.2), ThrottledError("", 0.2)])

    async def calls():
        endpoints = over(server)
        first = [asyncio.create_task(endpoints.call(Server.ask)) for _ in range(2)]
        await asyncio.sleep(0.02)
        late = asyncio.create_task(endpoints.call(Server.ask))
        await asyncio.sleep(0.1)
        before = server.calls
        await asyncio.gather(*first, late)
        return before

    assert asyncio.run(calls()) == 2
    assert server.calls == 5


def test_429s_by_chance_leave_an_endpoint_busy():
    chance = random.Random(1)
    script = [ThrottledError("", 0.01) if chance.random() < 0.1 else None for _ in range(400)]
    server = Server("one", script, seconds=0.005)

    async def calls():
        endpoints = over(server, concurrency=16)
        busy = []

        async def watched():
            while True:
                await asyncio.sleep(0.005)
                busy.append(server.busy)

        watch = asyncio.create_task(watched())
        await asyncio.gather(*(endpoints.call(Server.ask) for _ in range(350)))
        watch.cancel()
        return busy

    assert statistics.median(asyncio.run(calls())) >= 12


def test_an_endpoint_that_takes_fewer_calls_gets_fewer():
    class Narrow(Server):
        refused = 0

        async def ask(self):
            if self.busy >= 4:
                self.refused += 1
                raise ThrottledError("", 0.01)
            return await super().ask()

    server = Narrow("one", seconds=0.005)
    assert asked(over(server, concurrency=64), 600).count("one") == 600
    assert server.refused < 200


def test_a_call_that_is_throttled_for_ever_fails():
    server = Server("one", [ThrottledError("too many", 0)] * 100)
    (error,) = asked(over(server))
    assert isinstance(error, ThrottledError)
    assert server.calls == module._PATIENCE


def test_a_failing_endpoint_is_left_alone_and_comes_back(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_PAUSE_SECONDS", 0.2)
    broken = Server("broken", [RetryableError("down")] * 3, seconds=0.001)
    sound = Server("sound", seconds=0.001)

    async def phases():
        endpoints = over(broken, sound)
        while broken.calls < 3:
            await asyncio.gather(
                *(endpoints.call(Server.ask) for _ in range(2)), return_exceptions=True
            )
        closed = [await endpoints.call(Server.ask) for _ in range(5)]
        await asyncio.sleep(0.25)
        later = await asyncio.gather(*(endpoints.call(Server.ask) for _ in range(40)))
        return closed, later

    closed, later = asyncio.run(phases())
    assert closed == ["sound"] * 5
    assert "broken" in later


def test_a_refused_key_is_used_no_more():
    bad, good = Server("bad", [EndpointUnusableError("401")] * 9), Server("good")
    assert set(asked(over(bad, good), 5)) == {"good"}
    assert asked(over(bad, good)) == ["good"]


def test_when_every_key_is_refused_nothing_can_be_done():
    bad, worse = (
        Server("bad", [EndpointUnusableError("no quota")] * 9),
        Server("worse", [EndpointUnusableError("401")] * 9),
    )
    (error,) = asked(over(bad, worse))
    assert isinstance(error, BackendError)
    assert "bad: no quota" in str(error)
    assert "worse: 401" in str(error)


def test_a_refusal_is_an_answer():
    server = Server("one", [UnusableAnswerError("no")] * 5)
    assert [str(error) for error in asked(over(server), 5)] == ["no"] * 5
    assert asked(over(server)) == ["one"]


def test_a_call_that_is_given_up_gives_its_turn_away():
    server = Server("one", seconds=0.05)

    async def calls():
        endpoints = over(server, concurrency=1)
        tasks = [asyncio.create_task(endpoints.call(Server.ask)) for _ in range(4)]
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        tasks[2].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(calls())
    assert (answers[0], answers[3]) == ("one", "one")


def test_every_event_loop_has_clients_of_its_own():
    made = []

    def connect(_):
        made.append(Server("one"))
        return made[-1]

    endpoints = Endpoints([EndpointSettings()], connect, Server.close)
    assert asked(endpoints, 3) == asked(endpoints, 3) == ["one"] * 3
    assert [(server.calls, server.closed) for server in made] == [(3, 1), (3, 1)]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3), ("0.5", 0.5), ("-1", 0), ("nan", None), ("soon", None), (None, None), ("", None)],
)
def test_retry_after(header, seconds):
    assert parse_retry_after(header) == seconds


def test_retry_after_as_a_date():
    from datetime import UTC, datetime

    now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    assert parse_retry_after("Thu, 01 Jan 2026 12:00:30 GMT", now) == 30
