"""Queue, cancellation, deadlines, API keys and idempotency keys."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import openai
import pytest
from pydantic import ValidationError

from inference.roles import UnusableAnswerError
from inference.service.settings import ServiceSettings
from schemas import StorageError
from tests.inference.service.running_service import (
    HOUSE,
    OWN_EVENTS,
    SNOWMAN,
    CountingGenerator,
    blocked_roles,
    error_of,
    held_roles,
    images_of,
    raw_request,
    running_service,
    sketch_roles,
    wait_until,
)
from warehouse import EncodedImage

PATH = "/v1/responses"


@pytest.fixture
def held(home):
    """A service whose planner waits, and the barrier at which it does."""
    barrier, roles = blocked_roles(home)
    with running_service(home, roles) as service:
        yield service, barrier


def key_header(key):
    return {"Idempotency-Key": key}


def test_a_full_queue_answers_429_with_retry_after(home):
    barrier, roles = blocked_roles(home)
    with running_service(home, roles, running=1, waiting=1) as service:
        client = service.client()
        first, second = (client.responses.create(input=HOUSE, background=True) for _ in range(2))
        wait_until(lambda: barrier.waiting == 1)
        assert client.responses.retrieve(first.id).status == "in_progress"
        assert client.responses.retrieve(second.id).status == "queued"
        assert service.get("/health").status_code == service.get("/ready").status_code == 200
        rejected = service.post(PATH, json={"input": HOUSE})
        assert error_of(rejected, 429)["code"] == "queue_full"
        assert int(rejected.headers["retry-after"]) >= 1
        metrics = service.metrics()
        assert [metrics[f"interleave_service_{name}"] for name in ("running", "waiting")] == [1, 1]
        barrier.opened.set()
        done = service.client(retries=8).responses.create(input=HOUSE)
        assert done.status == "completed"
        wait_until(lambda: client.responses.retrieve(second.id).status == "completed")


def test_a_waiting_request_says_where_it_waits(home):
    """Also for how long, once a request has ended."""
    barrier, roles = blocked_roles(home)
    with running_service(home, roles, running=1) as service:
        client = service.client()

        def places():
            found = [client.responses.retrieve(each.id).interleave["queue"] for each in responses]
            return [place and place["position"] for place in found], found[-1]

        responses = [client.responses.create(input=HOUSE, background=True) for _ in range(3)]
        wait_until(lambda: barrier.waiting == 1)
        assert places() == ([None, 1, 2], {"position": 2, "expected_seconds": None})
        client.responses.cancel(responses[1].id)
        assert places()[0] == [None, None, 1]
        barrier.opened.set()
        wait_until(lambda: client.responses.retrieve(responses[2].id).status == "completed")
        assert places()[0] == [None, None, None]
        barrier.opened.clear()
        responses = [client.responses.create(input=HOUSE, background=True) for _ in range(2)]
        wait_until(lambda: barrier.waiting == 1)
        assert places()[0] == [None, 1] and places()[1]["expected_seconds"] is not None


def test_health_checks_do_not_wait_for_the_sketch_world(home, monkeypatch):
    """The first verdict takes it a second."""
    methods = ("planner.write_plan", "generator.draw", "critic.judge", "understanding.scope")
    with running_service(home) as service:
        client = service.client()
        for method in methods:
            computing, healthy = threading.Event(), threading.Event()

            def compute(*_, computing=computing, healthy=healthy):
                computing.set()
                assert healthy.wait(60)
                raise UnusableAnswerError("nothing to draw")

            with monkeypatch.context() as patch:
                patch.setattr(f"inference.sketch_world.{method}", compute)
                response = client.responses.create(input=HOUSE, background=True)
                assert computing.wait(60)
                assert service.get("/health").status_code == 200
                healthy.set()
                wait_until(lambda r=response: client.responses.retrieve(r.id).status == "failed")


def test_one_key_cannot_fill_the_queue(home):
    barrier, roles = blocked_roles(home)
    with running_service(home, roles, keys=("one", "two"), per_key=1) as service:
        mine, yours = service.client(key="one"), service.client(key="two")
        response = mine.responses.create(input=HOUSE, background=True)
        with pytest.raises(openai.RateLimitError, match="1 requests of this key"):
            mine.responses.create(input=HOUSE)
        with pytest.raises(openai.NotFoundError):
            yours.responses.retrieve(response.id)
        with pytest.raises(openai.NotFoundError):
            yours.responses.cancel(response.id)
        assert yours.responses.create(input=HOUSE, background=True).status == "queued"
        barrier.opened.set()
        wait_until(lambda: mine.responses.retrieve(response.id).status == "completed")


def test_requests_need_a_key_where_keys_are_set(home):
    with running_service(home, keys=("open sesame",)) as service:
        assert service.client(key="open sesame").models.list().data
        with pytest.raises(openai.AuthenticationError):
            service.client(key="open").responses.create(input=HOUSE)
        for path in ("/health", "/ready", "/openapi.json", "/docs"):
            assert service.get(path).status_code == 200
        documented = service.get("/openapi.json").json()["paths"]
        routes = [
            (path, method) for path, operations in documented.items() for method in operations
        ]
        public = ("/health", "/ready", "/studio/settings")
        for path, method in [
            ("/metrics", "get"),
            *(each for each in routes if each[0] not in public),
        ]:
            response = httpx.request(method, service.url + path, timeout=60)
            assert error_of(response, 401)["code"] == "invalid_api_key"
            assert response.headers["WWW-Authenticate"] == "Bearer"
        bearer = {"Authorization": "bearer open sesame"}  # schemes are case-insensitive
        assert service.get("/v1/models", headers=bearer).status_code == 200


def test_other_origins_cannot_use_a_service_without_keys(service):
    for host in ("evil.example", "evil.example:80", "[::2]:80"):
        assert service.get("/v1/models", headers={"Host": host}).status_code == 421
    for host in ("localhost:80", "127.0.0.1", "[::1]:80"):
        assert service.get("/v1/models", headers={"Host": host}).status_code == 200
    plain = service.post(
        PATH, content=b'{"input": "a cat"}', headers={"Content-Type": "text/plain"}
    )
    assert "application/json" in error_of(plain, 400)["message"]


def test_pages_of_other_origins_change_nothing(service):
    own, image = service.url, ("a.png", EncodedImage.white((8, 8)).data)
    for page, allowed in [
        ({}, True),  # not a browser
        ({"Origin": own}, True),
        ({"Origin": own, "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "https://proxy.example", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://127.0.0.1:1"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": own, "Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
    ]:
        more = {"headers": page, "files": {"file": image}}
        upload = service.post("/v1/files", data={"purpose": "vision"}, **more)
        cancel = service.post(f"{PATH}/resp_1/cancel", headers=page)
        assert service.get("/v1/models", headers=page).status_code == 200
        if allowed:
            assert (upload.status_code, cancel.status_code) == (200, 404), page
            continue
        for refused in (upload, cancel):
            assert "another origin" in error_of(refused, 403)["message"]
        assert "Access-Control-Allow-Origin" not in upload.headers


def test_pages_of_allowed_origins_call_the_api(home):
    origin, foreign = {"Origin": "https://app.example"}, {"Origin": "https://evil.example"}
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    with running_service(home, keys=("mine",), cors_origins=["https://app.example"]) as service:
        preflight = httpx.options(service.url + PATH, headers=origin | asked)
        assert preflight.status_code == 200
        assert preflight.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert "authorization" in preflight.headers["Access-Control-Allow-Headers"]
        assert httpx.options(service.url + PATH, headers=foreign | asked).status_code == 400
        headers = origin | {"Authorization": "Bearer mine", "Sec-Fetch-Site": "cross-site"}
        answer = service.post(PATH, json={"input": HOUSE}, headers=headers)
        assert answer.json()["status"] == "completed"
        keyless = service.post(PATH, json={"input": HOUSE}, headers=origin)
        for readable in (answer, keyless):
            assert readable.headers["Access-Control-Allow-Origin"] == "https://app.example"
        error_of(keyless, 401)
        error_of(service.post(PATH, json={"input": HOUSE}, headers=headers | foreign), 403)
    for wrong in ("*", "app.example", "https://app.example/", "https://*.example"):
        with pytest.raises(ValidationError):
            ServiceSettings(cors_origins=[wrong])


def test_cancelling_stops_the_work_and_ends_its_stream(held):
    service, barrier = held
    client = service.client()
    with client.responses.create(input=HOUSE, stream=True) as stream:
        events = iter(stream)
        response_id = next(events).response.id
        wait_until(lambda: barrier.waiting == 1)
        cancelled = client.responses.cancel(response_id)
        assert cancelled.status == "cancelled" and barrier.cancelled == 1
        last = list(events)[-1]
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    assert client.responses.retrieve(response_id).status == "cancelled"
    assert client.responses.cancel(response_id).status == "cancelled"  # without effect


def test_a_disconnect_cancels(held):
    service, barrier = held
    for count, stream in enumerate((True, False), 1):
        with service.connect() as connection:  # the answer is not read
            connection.sendall(raw_request(PATH, {"input": HOUSE, "stream": stream}))
            wait_until(lambda: barrier.waiting == 1)
        wait_until(lambda n=count: barrier.cancelled == n)
        wait_until(lambda: service.metrics()["interleave_service_running"] == 0)
    store = service.manager.store
    wait_until(lambda: [each.status for each in store.search("")] == ["cancelled"] * 2)


def test_several_clients_follow_a_request_in_the_background(held):
    """It goes on when the first one disconnects."""
    service, barrier = held
    with ThreadPoolExecutor() as threads:
        client = service.client()
        with client.responses.create(input=HOUSE, background=True, stream=True) as stream:
            response_id = next(iter(stream)).response.id
        follow = partial(client.responses.retrieve, response_id, stream=True)
        streams = [threads.submit(lambda: list(follow())) for _ in range(3)]
        wait_until(lambda: barrier.waiting == 1)
        barrier.opened.set()
        first, *others = [stream.result() for stream in streams]
        assert first[-1].type == "response.completed" and others == [first] * 2


def test_a_quiet_stream_gets_pings(home):
    barrier, roles = blocked_roles(home)
    with running_service(home, roles, ping_seconds=0.05) as service:
        body = {"input": HOUSE, "stream": True}
        with httpx.stream("POST", service.url + PATH, json=body, timeout=30) as response:
            lines = response.iter_lines()
            while next(lines) != ": still here":
                pass
            barrier.opened.set()
            assert any(line == "event: response.completed" for line in lines)


def test_a_request_has_a_deadline(home):
    _, roles = blocked_roles(home)
    with running_service(home, roles, deadline_seconds=0.3) as service:
        response = service.post(PATH, json={"input": HOUSE})
        assert "not finished in 0.3 seconds" in error_of(response, 504)["message"]
        assert response.headers["x-should-retry"] == "false"


def test_the_same_idempotency_key_returns_the_same_response(home):
    generator = CountingGenerator(sketch_roles(home).generator)
    with running_service(home, sketch_roles(home, generator=generator)) as service:
        client = service.client()
        first = client.responses.create(input=SNOWMAN, extra_headers=key_header("k"))
        calls = len(generator.calls)
        again = client.responses.create(input=SNOWMAN, extra_headers=key_header("k"))
        assert again == first and len(generator.calls) == calls
        with pytest.raises(openai.UnprocessableEntityError, match="another request"):
            client.responses.create(input=HOUSE, extra_headers=key_header("k"))
        assert client.responses.create(input=HOUSE, extra_headers=key_header("l")).id != first.id
        chat = {"model": "interleave", "messages": [{"role": "user", "content": HOUSE}]}
        completions = [
            client.chat.completions.create(**chat, extra_headers=key_header("c")) for _ in range(2)
        ]
        assert completions[0] == completions[1]
        with pytest.raises(openai.BadRequestError, match="more than 255"):
            client.responses.create(input=HOUSE, extra_headers=key_header("k" * 256))
        for _ in range(2):
            with pytest.raises(openai.BadRequestError, match="nothing to draw"):
                client.responses.create(input="zzz", extra_headers=key_header("z"))


def test_the_same_idempotency_key_joins_a_running_request(held):
    service, barrier = held
    with ThreadPoolExecutor() as threads:
        create = partial(service.client().responses.create, extra_headers=key_header("k"))
        answers = [threads.submit(create, input=HOUSE) for _ in range(4)]
        wait_until(lambda: barrier.waiting)
        with pytest.raises(openai.UnprocessableEntityError):
            create(input=SNOWMAN)
        barrier.opened.set()
        assert len({answer.result().id for answer in answers}) == 1


def test_a_retry_continues_after_a_disconnect(home):
    barrier, roles = held_roles(home)
    calls = roles.generator.calls
    with running_service(home, roles) as service:
        client = service.client()
        body = {"input": SNOWMAN, "extra_headers": key_header("k") | OWN_EVENTS}
        with client.responses.create(stream=True, **body) as stream:
            events = iter(stream)
            response_id = next(events).response.id
            wait_until(lambda: barrier.waiting)
        wait_until(lambda: barrier.cancelled)
        barrier.opened.set()
        before = list(calls)
        with client.responses.create(stream=True, **body) as stream:
            events = list(stream)
        assert events[-1].type == "response.completed" and events[0].response.id == response_id
        draws = [event for event in events if event.type == "interleave.attempt.drawn"]
        assert len(draws) >= 4 and not set(before) & set(calls[len(before) :])


def test_a_stopped_service_interrupts_and_a_retry_continues(home):
    barrier, roles = blocked_roles(home)
    with running_service(home, roles, grace_seconds=0.2) as service:
        client = service.client()
        with client.responses.create(
            input=HOUSE, stream=True, extra_headers=key_header("k")
        ) as stream:
            events = iter(stream)
            response_id = next(events).response.id
            service.stop()
            last = list(events)[-1]
        assert last.type == "response.failed" and "Idempotency-Key" in last.response.error.message
        assert last.response.interleave["status"] == "interrupted"
    barrier.opened.set()
    with running_service(home, roles) as service:
        response = service.client().responses.create(
            input=HOUSE, stream=True, extra_headers=key_header("k")
        )
        events = list(response)
        assert events[0].response.id == response_id and events[-1].type == "response.completed"
        assert len(service.manager.store.search("")) == 1


def test_a_stopped_service_lets_running_requests_finish(home):
    barrier, roles = blocked_roles(home)
    with running_service(home, roles, grace_seconds=60) as service:
        client = service.client()
        with client.responses.create(input=HOUSE, stream=True) as stream:
            events = iter(stream)
            next(events)
            wait_until(lambda: barrier.waiting)
            service.stop()
            wait_until(lambda: service.manager.queue.closed)
            rejected = service.post(PATH, json={"input": HOUSE})
            assert error_of(rejected, 503)["code"] == "stopping"
            assert error_of(service.get("/ready"), 503)["code"] == "not_ready"
            assert service.get("/health").status_code == 200
            barrier.opened.set()
            assert list(events)[-1].type == "response.completed"


def test_responses_survive_a_restart(home):
    """They are not held in memory; two services cannot share a home."""
    with running_service(home) as service:
        first = service.client().responses.create(input=HOUSE)
        wait_until(lambda: not service.manager._runs and not service.manager._tasks)
        with pytest.raises(StorageError, match="another service uses"), running_service(home):
            pass
    with running_service(home) as service:
        again = service.client().responses.retrieve(first.id)
        assert again == first and images_of(again)
