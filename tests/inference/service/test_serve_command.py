"""`interleave serve` as a process: after a kill, and stopped by SIGTERM."""

import signal
from contextlib import suppress

import openai
import pytest

from assets.core.profile import load_profile
from inference.calls.call_index import CallIndex
from tests.helpers.command import interleave
from tests.inference.service.running_service import OWN_EVENTS, SNOWMAN
from tests.inference.service.serve_command import serving
from tests.inference.service.test_kills import killed_service


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
    with killed_service(home.root) as url:
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
