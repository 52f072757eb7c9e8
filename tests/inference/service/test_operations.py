"""Queue, cancellation, deadlines, keys, idempotency: what operators rely on."""

import threading

import httpx
import openai
import pytest

from schemas import StorageError
from tests.inference.service.running_service import (
    HOUSE,
    SNOWMAN,
    CountedGenerator,
    Gate,
    HeldPlanner,
    error_of,
    pictures_of,
    running,
    sketched,
    until,
)

PATH = "/v1/responses"


def held(home, **others):
    """A gate, and players of whom the planner waits at it."""
    gate, roles = Gate(), sketched(home)
    return gate, sketched(home, planner=HeldPlanner(roles.planner, gate), **others)


def keyed(key):
    return {"Idempotency-Key": key}


def test_a_full_queue_says_when_to_come_back(home):
    gate, roles = held(home)
    with running(home, roles, running=1, waiting=1) as service:
        client = service.client()
        first, second = (client.responses.create(input=HOUSE, background=True) for _ in range(2))
        until(lambda: gate.waiting == 1)
        assert client.responses.retrieve(first.id).status == "in_progress"
        assert client.responses.retrieve(second.id).status == "queued"
        refused = service.post(PATH, json={"input": HOUSE})
        assert error_of(refused, 429)["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) >= 1
        seen = service.metrics()
        assert seen["interleave_service_running"] == 1 and seen["interleave_service_waiting"] == 1
        gate.go_on.set()
        done = service.client(retries=8).responses.create(input=HOUSE)
        assert done.status == "completed"
        until(lambda: client.responses.retrieve(second.id).status == "completed")


def test_a_key_has_its_share(home):
    gate, roles = held(home)
    with running(home, roles, keys=("one", "two"), per_key=1) as service:
        mine, yours = service.client(key="one"), service.client(key="two")
        response = mine.responses.create(input=HOUSE, background=True)
        with pytest.raises(openai.RateLimitError, match="1 requests of this key"):
            mine.responses.create(input=HOUSE)
        with pytest.raises(openai.NotFoundError):
            yours.responses.retrieve(response.id)
        with pytest.raises(openai.NotFoundError):
            yours.responses.cancel(response.id)
        assert yours.responses.create(input=HOUSE, background=True).status == "queued"
        gate.go_on.set()
        until(lambda: mine.responses.retrieve(response.id).status == "completed")


def test_keys_are_asked_for(home):
    with running(home, keys=("open sesame",)) as service:
        assert service.client(key="open sesame").models.list().data
        with pytest.raises(openai.AuthenticationError):
            service.client(key="open").responses.create(input=HOUSE)
        for path in ("/health", "/ready", "/openapi.json"):
            assert service.get(path).status_code == 200
        for path in ("/metrics", "/v1/models", PATH + "/x"):
            assert error_of(service.get(path), 401)["code"] == "invalid_api_key"


def test_pages_of_elsewhere_cannot_ask_a_service_without_keys(service):
    for host in ("evil.example", "evil.example:80", "[::2]:80"):
        assert service.get("/v1/models", headers={"Host": host}).status_code == 421
    for host in ("localhost:80", "127.0.0.1", "[::1]:80"):
        assert service.get("/v1/models", headers={"Host": host}).status_code == 200
    plain = service.post(
        PATH, content=b'{"input": "a cat"}', headers={"Content-Type": "text/plain"}
    )
    assert "application/json" in error_of(plain, 400)["message"]


def test_cancelled_work_stops(home):
    gate, roles = held(home)
    with running(home, roles) as service:
        client = service.client()
        response = client.responses.create(input=HOUSE, background=True)
        until(lambda: gate.waiting == 1)
        cancelled = client.responses.cancel(response.id)
        assert cancelled.status == "cancelled" and gate.cancelled == 1
        assert client.responses.retrieve(response.id).status == "cancelled"
        assert client.responses.cancel(response.id).status == "cancelled"  # again, and nothing more


def test_a_cancelled_stream_ends(home):
    gate, roles = held(home)
    with running(home, roles) as service:
        client = service.client()
        with client.responses.create(input=HOUSE, stream=True) as stream:
            events = iter(stream)
            first = next(events)
            client.responses.cancel(first.response.id)
            rest = list(events)
        assert rest[-1].type == "response.incomplete" and rest[-1].response.status == "cancelled"
        assert gate.waiting == 0


@pytest.mark.parametrize("stream", [True, False])
def test_who_goes_away_cancels(home, stream):
    gate, roles = held(home)
    with running(home, roles) as service:
        body = {"input": HOUSE, "stream": stream}
        with (
            pytest.raises(httpx.ReadTimeout),  # it leaves when there has been no news for a second
            httpx.stream("POST", service.url + PATH, json=body, timeout=1) as response,
        ):
            response.read()
        until(lambda: gate.cancelled == 1)
        until(lambda: service.metrics()["interleave_service_running"] == 0)
        kept = service.service.library.search("")
        assert [each.status for each in kept] == ["cancelled"]


def test_who_goes_away_from_the_background_does_not(home):
    gate, roles = held(home)
    with running(home, roles) as service:
        client = service.client()
        with client.responses.create(input=HOUSE, background=True, stream=True) as stream:
            response_id = next(iter(stream)).response.id
        until(lambda: gate.waiting == 1)
        gate.go_on.set()
        until(lambda: client.responses.retrieve(response_id).status == "completed")
        events = list(client.responses.retrieve(response_id, stream=True))
        assert events[-1].type == "response.completed"


def test_several_follow_one_request(home):
    gate, roles = held(home)
    with running(home, roles) as service:
        client = service.client()
        response = client.responses.create(input=HOUSE, background=True)
        seen = []

        def follow():
            seen.append(list(client.responses.retrieve(response.id, stream=True)))

        threads = [threading.Thread(target=follow) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: gate.waiting == 1)
        gate.go_on.set()
        for thread in threads:
            thread.join()
        assert seen[0] == seen[1] == seen[2] and seen[0][-1].type == "response.completed"


def test_a_quiet_stream_is_kept_open(home):
    gate, roles = held(home)
    with running(home, roles, ping_seconds=0.05) as service:
        body = {"input": HOUSE, "stream": True}
        with httpx.stream("POST", service.url + PATH, json=body, timeout=30) as response:
            lines = response.iter_lines()
            while next(lines) != ": still here":
                pass
            gate.go_on.set()
            assert any(line == "event: response.completed" for line in lines)


def test_a_request_has_a_deadline(home):
    _, roles = held(home)
    with running(home, roles, deadline_seconds=0.3) as service:
        late = service.post(PATH, json={"input": HOUSE})
        assert "not finished in 0.3 seconds" in error_of(late, 504)["message"]
        assert late.headers["x-should-retry"] == "false"


def test_the_same_key_is_the_same_response(home):
    generator = CountedGenerator(sketched(home).generator)
    with running(home, sketched(home, generator=generator)) as service:
        client = service.client()
        first = client.responses.create(input=SNOWMAN, extra_headers=keyed("k"))
        calls = len(generator.calls)
        again = client.responses.create(input=SNOWMAN, extra_headers=keyed("k"))
        assert again == first and len(generator.calls) == calls
        with pytest.raises(openai.UnprocessableEntityError, match="another request"):
            client.responses.create(input=HOUSE, extra_headers=keyed("k"))
        assert client.responses.create(input=HOUSE, extra_headers=keyed("l")).id != first.id
        chat = {"model": "interleave", "messages": [{"role": "user", "content": HOUSE}]}
        told = [client.chat.completions.create(**chat, extra_headers=keyed("c")) for _ in range(2)]
        assert told[0] == told[1]
        with pytest.raises(openai.BadRequestError, match="more than 255"):
            client.responses.create(input=HOUSE, extra_headers=keyed("k" * 256))
        for _ in range(2):
            with pytest.raises(openai.BadRequestError, match="nothing to draw"):
                client.responses.create(input="zzz", extra_headers=keyed("z"))


def test_the_same_key_joins_what_is_under_way(home):
    gate, roles = held(home)
    with running(home, roles) as service:
        found = []

        def ask():
            found.append(service.client().responses.create(input=HOUSE, extra_headers=keyed("k")))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: gate.waiting)
        with pytest.raises(openai.UnprocessableEntityError):
            service.client().responses.create(input=SNOWMAN, extra_headers=keyed("k"))
        gate.go_on.set()
        for thread in threads:
            thread.join()
        assert len({response.id for response in found}) == 1 and len(found) == 4


def test_who_went_away_goes_on_under_the_same_key(home):
    gate, sketch = Gate(), sketched(home)
    generator = CountedGenerator(sketch.generator, gate, free=2)
    with running(home, sketched(home, generator=generator)) as service:
        client = service.client()
        body = {"input": SNOWMAN, "extra_headers": keyed("k")}
        with client.responses.create(stream=True, **body) as stream:
            events = iter(stream)
            response_id = next(events).response.id
            until(lambda: gate.waiting)
        until(lambda: gate.cancelled)
        gate.go_on.set()
        before = list(generator.calls)
        with client.responses.create(stream=True, **body) as stream:
            events = list(stream)
        assert events[-1].type == "response.completed" and events[0].response.id == response_id
        drawn = [event for event in events if event.type == "interleave.attempt.drawn"]
        assert len(drawn) >= 4 and not set(before) & set(generator.calls[len(before) :])


def test_a_stopped_service_hands_back(home):
    gate, roles = held(home)
    with running(home, roles, grace_seconds=0.2) as service:
        client = service.client()
        with client.responses.create(input=HOUSE, stream=True, extra_headers=keyed("k")) as stream:
            events = iter(stream)
            response_id = next(events).response.id
            service.stop()
            last = list(events)[-1]
        assert last.type == "response.failed" and "Idempotency-Key" in last.response.error.message
        assert last.response.interleave["status"] == "interrupted"
    gate.go_on.set()
    with running(home, roles) as service:
        response = service.client().responses.create(
            input=HOUSE, stream=True, extra_headers=keyed("k")
        )
        events = list(response)
        assert events[0].response.id == response_id and events[-1].type == "response.completed"


def test_a_stopped_service_finishes_what_it_can(home):
    gate, roles = held(home)
    with running(home, roles, grace_seconds=60) as service:
        client = service.client()
        with client.responses.create(input=HOUSE, stream=True) as stream:
            events = iter(stream)
            next(events)
            until(lambda: gate.waiting)
            service.stop()
            until(lambda: service.service.desk.queue.closed)
            refused = service.post(PATH, json={"input": HOUSE})
            assert error_of(refused, 503)["code"] == "stopping"
            assert error_of(service.get("/ready"), 503)["code"] == "not_ready"
            assert service.get("/health").status_code == 200
            gate.go_on.set()
            assert list(events)[-1].type == "response.completed"


def test_two_services_cannot_have_one_home(home):
    with running(home), pytest.raises(StorageError, match="another service has"), running(home):
        pass


def test_finished_requests_are_not_held_in_memory(home):
    with running(home) as service:
        client = service.client()
        for _ in range(5):
            client.responses.create(input=HOUSE)
        until(lambda: not service.service.desk._runs)
        assert not service.service.desk._tasks
        assert len(service.service.library.search("")) == 5


def test_who_waits_keeps_nobody_else_waiting(home):
    gate, roles = held(home)
    with running(home, roles) as service:
        service.client().responses.create(input=HOUSE, background=True)
        until(lambda: gate.waiting)
        assert service.get("/health").status_code == service.get("/ready").status_code == 200
        assert gate.waiting == 1
        gate.go_on.set()


def test_responses_of_before_a_restart_are_there(home):
    with running(home) as service:
        first = service.client().responses.create(input=HOUSE)
    with running(home) as service:
        again = service.client().responses.retrieve(first.id)
        assert again == first and pictures_of(again)
