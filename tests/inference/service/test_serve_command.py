"""`interleave serve` as a process: started, killed, started again, stopped."""

import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from assets.core.profile import load_profile
from inference.engine.call_index import CallIndex
from tests.inference.service.running_service import HOUSE, SNOWMAN
from tests.inference.service.serve_command import serving


def finished(home, generation_id):
    with suppress(FileNotFoundError):
        return CallIndex.read(home.journal("generations", generation_id)).ledger()
    return []


def test_a_killed_service_goes_on_under_the_same_key(home):
    """What was running is marked; a retry makes no finished call again."""
    asked = {
        "input": SNOWMAN,
        "stream": True,
        "extra_headers": {"Idempotency-Key": "mine"},
        "extra_body": {"interleave": {"draw_ahead": False, "seed": 4}},
    }
    with serving(home.root) as (process, client):
        stream = client.responses.create(**asked)
        for event in stream:
            if event.type == "response.created":
                response_id = event.response.id
            if event.type == "interleave.step.settled" and event.step == 2:
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
    before = finished(home, response_id.removeprefix("resp_"))
    assert before
    with serving(home.root) as (process, client):
        left = client.responses.retrieve(response_id)
        assert left.status == "failed" and "stopped before" in left.error.message
        assert left.interleave["status"] == "interrupted"
        events = list(client.responses.create(**asked))
        assert events[-1].type == "response.completed"
        assert events[0].response.id == response_id
        after = finished(home, response_id.removeprefix("resp_"))
    ids = [call.call_id for call in after]
    assert ids[: len(before)] == [call.call_id for call in before]
    assert len({(call.role, call.request_hash) for call in after}) == len(ids)


def test_told_to_end_it_ends_quietly(home):
    with serving(home.root) as (process, client):
        assert client.responses.create(input=HOUSE).status == "completed"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in errors and "stopped" in errors


def test_what_cannot_be_served_is_one_line(home):
    command = [sys.executable, "-m", "dagster_project.cli.app", "serve"]
    for options, message in [
        (["--host", "0.0.0.0"], "set INTERLEAVE_SERVICE_KEYS"),
        (["--profile", "nothing"], "no profile 'nothing'"),
    ]:
        done = subprocess.run(
            [*command, "--home", home.root, "--port", "0", *options],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 1 and message in done.stderr
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_profiles_say_how_to_serve():
    settings = load_profile("sketch").service
    assert settings.host == "127.0.0.1" and not settings.limits.remote_pictures
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1
