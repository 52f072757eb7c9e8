"""Metrics and logs: what an operator sees of a service."""

import json
import logging
import sys

import openai
import pytest

from inference.service.logs import JsonLines
from tests.inference.service.running_service import HOUSE, SNOWMAN, running

PATH = "/v1/responses"


def test_prometheus_is_told(home):
    with running(home) as service:
        client = service.client()
        responses = [client.responses.create(input=SNOWMAN) for _ in range(3)]
        with pytest.raises(openai.BadRequestError):
            client.responses.create(input="zzz")
        seen = service.metrics()
        prefix = "interleave_service_"
        steps = [step for response in responses for step in response.interleave["steps"]]
        attempts = [each for step in steps for each in step["attempts"]]
        accepted = sum(each["accepted"] for each in attempts)
        assert seen[prefix + 'attempts_total{accepted="true"}'] == accepted
        assert seen[prefix + "attempt_seconds_count"] == len(attempts)
        assert seen[prefix + "step_seconds_count"] == len(steps) == 12
        assert seen[prefix + 'requests_total{status="refused"}'] == 1
        calls = prefix + 'backend_seconds_count{backend="sketch",role="%s"}'
        assert seen[calls % "generator"] == seen[calls % "critic"] == len(attempts)
        path = 'http_requests_total{method="POST",path="/v1/responses",status="%d"}'
        assert seen[prefix + path % 200] == 3 and seen[prefix + path % 400] == 1
        assert sum(seen[k] for k in seen if k.startswith(prefix + "requests_total")) == 4
        wasted = sum(response.interleave["wasted_draws"] for response in responses)
        assert seen[prefix + "wasted_draws_total"] == wasted


def test_logs_have_ids_and_no_prompts(home, caplog):
    caplog.set_level(logging.INFO)
    secret = "A red house beside a tree, secretly"
    with running(home) as service:
        service.post(PATH, json={"input": secret}, headers={"X-Request-ID": "mine-1"})
        answer = service.post(PATH, json={"input": "zzz unheard of"})
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    text = json.dumps(lines)
    assert "secretly" not in text and "unheard" not in text
    requests = [line for line in lines if line["message"] == "request"]
    assert [line["status"] for line in requests] == [200, 400]
    assert answer.headers["x-request-id"].startswith("req_")
    assert {line["message"] for line in lines} >= {"story begun", "story over"}


def test_logs_may_have_prompts(home, caplog):
    caplog.set_level(logging.INFO)
    with running(home, logs={"prompts": True}) as service:
        service.post(PATH, json={"input": HOUSE})
    assert HOUSE in json.dumps([JsonLines(True).format(record) for record in caplog.records])


def test_an_error_in_a_log_quotes_nobody():
    try:
        raise ValueError("what a user asked for")
    except ValueError:
        record = logging.getLogger("x").makeRecord("x", 40, "f", 1, "bug", (), None)
        record.exc_info = sys.exc_info()
    assert "asked for" not in JsonLines().format(record)
    told = json.loads(JsonLines(True).format(record))
    assert told["error"]["message"] == "what a user asked for" and told["error"]["frames"]
