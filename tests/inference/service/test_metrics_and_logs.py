"""The service's metrics and logs."""

import json
import logging
import sys

import openai
import pytest

from inference.service.monitoring import JsonLines
from tests.inference.service.running_service import HOUSE, SNOWMAN, running_service

PATH = "/v1/responses"


def test_metrics_count_requests_steps_and_attempts(home):
    with running_service(home) as service:
        client = service.client()
        responses = [client.responses.create(input=SNOWMAN) for _ in range(3)]
        with pytest.raises(openai.BadRequestError):
            client.responses.create(input="zzz")
        metrics = service.metrics()
        prefix = "interleave_service_"
        steps = [step for response in responses for step in response.interleave["steps"]]
        attempts = [each for step in steps for each in step["attempts"]]
        accepted = sum(each["accepted"] for each in attempts)
        assert metrics[prefix + 'attempts_total{accepted="true"}'] == accepted
        assert metrics[prefix + "attempt_seconds_count"] == len(attempts)
        assert metrics[prefix + "step_seconds_count"] == len(steps) == 12
        assert metrics[prefix + 'requests_total{status="refused"}'] == 1
        calls = prefix + 'backend_seconds_count{backend="sketch",role="%s"}'
        assert metrics[calls % "generator"] == metrics[calls % "critic"] == len(attempts)
        path = 'http_requests_total{method="POST",path="/v1/responses",status="%d"}'
        assert metrics[prefix + path % 200] == 3 and metrics[prefix + path % 400] == 1
        assert sum(metrics[k] for k in metrics if k.startswith(prefix + "requests_total")) == 4
        wasted = sum(response.interleave["wasted_draws"] for response in responses)
        assert metrics[prefix + "wasted_draws_total"] == wasted


def test_logs_have_request_ids_and_prompts_where_a_setting_allows(home, caplog):
    caplog.set_level(logging.INFO)
    secret = "A red house secretly beside a tree"
    with running_service(home) as service:
        service.post(PATH, json={"input": secret}, headers={"X-Request-ID": "mine-1"})
        answer = service.post(PATH, json={"input": "zzz unheard of"})
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    text = json.dumps(lines)
    assert "secretly" not in text and "unheard" not in text
    requests = [line for line in lines if line["message"] == "request"]
    assert [line["status"] for line in requests] == [200, 400]
    assert answer.headers["x-request-id"].startswith("req_")
    assert {line["message"] for line in lines} >= {"generation started", "generation ended"}
    with running_service(home, logs={"prompts": True}) as service:
        service.post(PATH, json={"input": HOUSE})
    assert HOUSE in json.dumps([JsonLines(True).format(record) for record in caplog.records])


def test_a_logged_error_has_no_message_unless_prompts_are_allowed():
    try:
        raise ValueError("what a user asked for")
    except ValueError:
        record = logging.getLogger("x").makeRecord("x", 40, "f", 1, "bug", (), None)
        record.exc_info = sys.exc_info()
    assert "asked for" not in JsonLines().format(record)
    line = json.loads(JsonLines(True).format(record))
    assert line["error"]["message"] == "what a user asked for" and line["error"]["frames"]
