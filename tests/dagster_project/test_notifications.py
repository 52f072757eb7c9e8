"""Failed runs reach a webhook and a mailbox, or say in the tick why they did not."""

import email
import socketserver
import threading

import dagster as dg
import pytest
from pydantic import ValidationError

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.notification_settings import NotificationSettings
from dagster_project.instance import NO_RETRIES
from tests.dagster_project.conftest import tiny_foundry
from tests.helpers.ticks import materialize, sensor_tick

SHARD = "sketchbook-0000"


@pytest.fixture
def mailbox():
    """An SMTP server that keeps its `mails`."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(b"220 here\r\n")
            for line in self.rfile:
                word = line.split()[0].upper()
                if word == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = iter(self.rfile.readline, b".\r\n")
                    self.server.mails.append(email.message_from_bytes(b"".join(lines)))
                self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
                if word == b"QUIT":
                    return

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.mails = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def foundry(tmp_path) -> FoundryResource:
    settings = {"webhook": "TEST_WEBHOOK", "tries": 2, "timeout_seconds": 2}
    return tiny_foundry(tmp_path, notifications=settings)


@pytest.fixture
def cursor(foundry, instance):
    """Where the sensor begins: failures from now on."""
    return sensor_tick("notify_failures", foundry, instance).cursor


def fail(foundry, instance) -> str:
    """A run that fails, since there are no prompts; its id."""
    instance.add_dynamic_partitions(str(SHARDS.name), [SHARD])
    result = materialize(foundry, instance, ["plans"], partition_key=SHARD, raise_on_error=False)
    assert not result.success
    return result.run_id


def test_a_line_has_asset_partition_error_and_link(foundry, instance, cursor, webhook):
    run_id = fail(foundry, instance)
    ticked = sensor_tick("notify_failures", foundry, instance, cursor)
    (line,) = webhook.lines
    assert line.startswith(f"plans[{SHARD}] failed: ") and f"no prompts in shard '{SHARD}'" in line
    assert line.endswith(f"(http://127.0.0.1:3000/runs/{run_id})") and "\n" not in line
    assert ticked.skip_message == f"notified: {line}"
    again = sensor_tick("notify_failures", foundry, instance, ticked.cursor)
    assert len(webhook.lines) == 1 and not again.run_requests


def test_every_failure_is_notified_once_one_a_tick(foundry, instance, cursor, webhook):
    runs = [fail(foundry, instance) for _ in range(2)]
    for count in (1, 2, 2):
        cursor = sensor_tick("notify_failures", foundry, instance, cursor).cursor
        assert len(webhook.lines) == count
    assert all(run in line for run, line in zip(runs, webhook.lines, strict=True))


def test_a_run_whose_process_died_is_notified_too(foundry, instance, cursor, webhook):
    @dg.job
    def empty_job():
        """A job to create runs of."""

    for tags, after in (({}, "; it is started again"), (NO_RETRIES, "")):
        run = instance.create_run_for_job(empty_job, status=dg.DagsterRunStatus.STARTED, tags=tags)
        instance.report_run_failed(run, "the process of this run is gone")
        cursor = sensor_tick("notify_failures", foundry, instance, cursor).cursor
        line = f"empty_job failed{after}: the process of this run is gone ("
        assert webhook.lines[-1].startswith(line)


def test_a_busy_webhook_is_tried_again_and_a_failing_one_named(foundry, instance, cursor, webhook):
    cases = {(503,): "notified", (404,): "HTTP 404", (500, 500): "HTTP 500"}
    for statuses, said in cases.items():
        webhook.statuses, webhook.lines = list(statuses), []
        fail(foundry, instance)
        ticked = sensor_tick("notify_failures", foundry, instance, cursor)
        cursor = sensor_tick("notify_failures", foundry, instance, ticked.cursor).cursor
        assert len(webhook.lines) == len(statuses) + (said == "notified"), "passed over"
        assert said in ticked.skip_message and "hook-secret" not in ticked.skip_message


def test_what_is_wrong_with_its_url_is_said_without_it(foundry, instance, cursor, monkeypatch):
    urls = {
        "http://127.0.0.1:1/hook-secret": "ConnectionRefusedError",
        "no-url-hook-secret": "must start with https://",
        "": "TEST_WEBHOOK is not set",
    }
    for url, reason in urls.items():
        monkeypatch.setenv("TEST_WEBHOOK", url)
        fail(foundry, instance)
        ticked = sensor_tick("notify_failures", foundry, instance, cursor)
        cursor = ticked.cursor
        assert reason in ticked.skip_message and "hook-secret" not in ticked.skip_message


def test_a_mail_has_the_line(foundry, instance, cursor, mailbox, tmp_path):
    server = {"host": "127.0.0.1", "port": mailbox.server_address[1], "encryption": "none"}
    mail = {"mail": {**server, "sender": "a@b.c", "to": ["d@e.f"]}}
    mailed = tiny_foundry(tmp_path, notifications=mail)
    fail(mailed, instance)
    ticked = sensor_tick("notify_failures", mailed, instance, cursor)
    assert "notified" in ticked.skip_message
    (message,) = mailbox.mails
    assert message["To"] == "d@e.f" and f"plans[{SHARD}] failed" in message["Subject"]
    assert "no prompts in shard" in message.get_payload(decode=True).decode()


def test_without_the_section_nothing_is_sent(foundry, instance, cursor, tmp_path):
    silent = tiny_foundry(tmp_path)
    fail(silent, instance)
    ticked = sensor_tick("notify_failures", silent, instance, cursor)
    assert ticked.skip_message == "profile tiny has no section notifications"


def test_incomplete_settings_are_refused():
    incomplete = {
        "set `webhook`, `mail` or both": {"tries": 2},
        "needs both `user`": {"mail": {"host": "a", "sender": "b", "to": ["c"], "user": "d"}},
    }
    for problem, settings in incomplete.items():
        with pytest.raises(ValidationError, match=problem):
            NotificationSettings.model_validate(settings)
