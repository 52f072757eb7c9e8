"""The service is killed or stopped, in a process of its own or as `interleave serve`."""

import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

import httpx
import openai
import pytest

from assets.core.profile import load_profile
from inference.calls.call_index import CallIndex
from inference.service.response_store import ResponseStore
from tests.helpers.command import interleave
from tests.inference.service.running_service import (
    OWN_EVENTS,
    SNOWMAN,
    blocked_roles,
    held_roles,
    running_service,
    serving,
    wait_until,
)
from warehouse import Home
from warehouse.sql import query

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.inference.service.test_kills"])
REFUSED = "zzz"


def serve(folder, address, settling_seconds, roles_of, settings):
    """A service in this process; its store takes its time, so that what is sent too early shows."""
    settle = ResponseStore.settle

    def settle_slowly(*given, **named):
        time.sleep(settling_seconds)
        settle(*given, **named)

    ResponseStore.settle = settle_slowly
    home = Home(folder)
    roles = roles_of(home)[1] if roles_of else None
    with running_service(home, roles, **settings) as service:
        address.send(service.url)
        time.sleep(3600)


@contextmanager
def killed_service(folder, settling_seconds=0.0, roles_of=None, **settings):
    """The address of a service, which is killed at the end of the context."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    arguments = (folder, sender, settling_seconds, roles_of, settings)
    process = PROCESSES.Process(target=serve, args=arguments)
    process.start()
    try:
        yield receiver.recv()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def stored_statuses(url, responses):
    """What a service says of responses."""
    return [httpx.get(f"{url}/v1/responses/{each}").json()["status"] for each in responses]


def rows(home):
    """Status by text, of the requests in the lake."""
    found = query("select text, status from generations", home)
    assert found.text.is_unique
    return dict(zip(found.text, found.status, strict=True))


def test_an_answer_that_a_client_has_is_stored(tmp_path):
    """By whichever API, and however it ended."""
    texts = [f"{count} red houses" for count in ("two", "three", "four", "five")]

    def ask(url, way):
        """Return when the client knows how its request ended."""
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
        messages = [{"role": "user", "content": texts[way % len(texts)]}]
        match way:
            case 0:
                *_, last = client.responses.create(input=texts[0], stream=True)
                assert last.type == "response.completed"
            case 1:
                assert client.responses.create(input=texts[1]).status == "completed"
            case 2:
                client.chat.completions.create(model="interleave", messages=messages)
            case 3:
                create = client.chat.completions.create
                list(create(model="interleave", messages=messages, stream=True))
            case 4:
                *_, last = client.responses.create(input=REFUSED, stream=True)
                assert last.type == "response.failed"
            case 5:
                started = client.responses.create(input="a cat", background=True)
                wait_until(lambda: client.responses.retrieve(started.id).status == "completed")

    with killed_service(tmp_path, settling_seconds=0.5) as url, ThreadPoolExecutor() as pool:
        list(pool.map(partial(ask, url), range(6)))
    home, expected = Home(tmp_path), dict.fromkeys([*texts, "a cat"], "complete")
    with running_service(home) as service:
        stored = {each.request.text: each.status for each in service.manager.store.search("")}
        assert stored == expected | {REFUSED: "refused"}
    assert rows(home) == stored


def test_a_request_that_waits_is_interrupted_by_a_kill(tmp_path):
    with killed_service(tmp_path, roles_of=blocked_roles, running=1) as url:
        bodies = [{"input": text, "background": True} for text in ("a cat", "a dog", "a tree")]
        responses = [httpx.post(f"{url}/v1/responses", json=body).json()["id"] for body in bodies]
    home = Home(tmp_path)
    with running_service(home) as service:
        assert stored_statuses(service.url, responses) == ["failed"] * 3
        assert rows(home) == dict.fromkeys(["a cat", "a dog", "a tree"], "interrupted")


def test_a_request_that_ends_while_it_waits_has_a_row(home):
    barrier, roles = blocked_roles(home)
    with running_service(home, roles, running=1) as service:
        client = service.client()
        texts = ("a cat", "a dog", "a tree")
        started = [client.responses.create(input=text, background=True) for text in texts]
        wait_until(lambda: barrier.waiting == 1)
        client.responses.cancel(started[1].id)
    assert rows(home) == {"a cat": "cancelled", "a dog": "cancelled", "a tree": "interrupted"}


def journaled_calls(home, response_id):
    with suppress(FileNotFoundError):
        journal = home.journal("generations", response_id.removeprefix("resp_"))
        return CallIndex.read(journal).ledger()
    return []


def test_a_retry_continues_after_a_kill(home):
    """The running request is marked as interrupted; a retry repeats no finished call.

    SIGTERM stops the command without an error.
    """
    request = {
        "input": SNOWMAN,
        "stream": True,
        "extra_headers": {"Idempotency-Key": "mine"} | OWN_EVENTS,
        "extra_body": {"interleave": {"draw_ahead": False, "seed": 4}},
    }
    with killed_service(home.root, roles_of=held_roles) as url:  # its third image is not drawn
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        stream = client.responses.create(**request)  # open until the service is killed
        for event in stream:
            if event.type == "response.created":
                response_id = event.response.id
            if event.type == "interleave.step.settled" and event.step == 2:
                break
    before = journaled_calls(home, response_id)
    assert before
    with serving(home.root) as (process, client):
        with pytest.raises(openai.UnprocessableEntityError, match="another request"):
            client.responses.create(**request | {"input": "a cat"})
        interrupted = client.responses.retrieve(response_id)
        assert interrupted.status == "failed"
        assert "stopped before" in interrupted.error.message
        assert interrupted.interleave["status"] == "interrupted"
        events = list(client.responses.create(**request))
        assert events[-1].type == "response.completed"
        assert events[0].response.id == response_id
        after = journaled_calls(home, response_id)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in errors and "stopped" in errors
    ids = [call.call_id for call in after]
    assert ids[: len(before)] == [call.call_id for call in before]
    assert len({(call.role, call.request_hash) for call in after}) == len(ids)


def test_an_invalid_command_is_one_line_of_error(home, capsys):
    for options, message in [
        (["--host", "0.0.0.0"], "set INTERLEAVE_SERVICE_KEYS"),
        (["--profile", "nothing"], "no profile 'nothing'"),
    ]:
        done = interleave(capsys, "serve", "--home", home.root, "--port", "0", *options)
        assert done.returncode == 1 and message in done.stderr
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_settings_come_from_the_profile():
    settings = load_profile("sketch").service
    assert settings.host == "127.0.0.1"
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1
