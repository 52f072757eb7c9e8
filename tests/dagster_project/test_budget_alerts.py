"""Shares of the budget are told once each: with several processes spending and several ticking,
after kills, after a webhook was down, and again for another budget."""

import multiprocessing
import signal
import threading
import time
from contextlib import suppress

import pytest

from assets.core.foundry import FoundryResource
from dagster_project.notifications import notify_alerts
from inference.backends.providers.budget import SPENDING_FILE, Budget, SpendingFile
from schemas import FoundryError
from tests.dagster_project.conftest import tiny_foundry
from tests.helpers.automation import wait_until
from tests.helpers.spending import SHARES, spend, spend_and_die
from tests.helpers.ticks import sensor_tick

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def foundry(tmp_path) -> FoundryResource:
    settings = {"webhook": "TEST_WEBHOOK", "tries": 1, "timeout_seconds": 5}
    return tiny_foundry(tmp_path, notifications=settings, budget={"usd": 1})


@pytest.fixture
def path(foundry):
    return foundry.home.local / SPENDING_FILE


def keep_notifying(settings, path):
    """What the sensor of one of several daemons does; another one may be at it."""
    while True:
        with suppress(FoundryError):
            notify_alerts(settings, SpendingFile(path))
        time.sleep(0.02)


def shares(lines):
    return [line.split(" of the budget")[0] for line in lines]


def tick(foundry, instance):
    return sensor_tick("notify_budget", foundry, instance).skip_message


def test_each_share_is_notified_once_in_order(foundry, instance, path, webhook, caplog):
    assert foundry.settings.budget.alerts == SHARES
    assert tick(foundry, instance) == "no new alerts"
    spend(path, 0.3)
    assert tick(foundry, instance) == "no new alerts"
    spend(path, 0.3)
    assert tick(foundry, instance) == f"notified: {webhook.lines[0]}"
    assert webhook.lines[0].startswith("50% of the budget is spent: 0.60 of 1.00 USD (")
    spend(path, 0.05, calls=8)
    tick(foundry, instance)
    assert tick(foundry, instance) == "no new alerts"
    assert shares(webhook.lines) == ["50%", "80%", "95%"]
    assert [record.message for record in caplog.records if "of the budget" in record.message] == (
        webhook.lines
    )


def test_processes_that_spend_and_notify_at_the_same_time(foundry, path, webhook):
    arguments = (foundry.settings.notifications, path)
    notifying = [threading.Thread(target=keep_notifying, args=arguments, daemon=True) for _ in "ab"]
    spending = [SPAWN.Process(target=spend, args=(path, 0.01, 60)) for _ in range(3)]
    spend(path, 0.01)
    for each in (*spending, *notifying):
        each.start()
    for each in spending:
        each.join()
    wait_until(lambda: len(webhook.lines) >= len(SHARES), pause=0.05)
    time.sleep(0.2)
    assert shares(webhook.lines) == ["50%", "80%", "95%"]


def test_costs_of_killed_processes_are_notified(foundry, instance, path, webhook):
    process = SPAWN.Process(target=spend_and_die, args=(path, 0.6))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    tick(foundry, instance)
    assert shares(webhook.lines) == ["50%"]
    assert Budget(path, 1.0, 60, SHARES)._try_reserve("killed", 0.3, time.time() - 1)
    spend(path, 0.2)  # for which there is no room any more
    tick(foundry, instance)
    assert shares(webhook.lines) == ["50%", "80%"]


def test_a_process_that_is_killed_leaves_the_alert_to_the_next(foundry, instance, path, webhook):
    spend(path, 0.6)
    webhook.pause = 60
    notifier = SPAWN.Process(target=keep_notifying, args=(foundry.settings.notifications, path))
    notifier.start()
    wait_until(lambda: webhook.lines, pause=0.05)
    assert tick(foundry, instance) == "another process delivers the alerts of this budget"
    notifier.kill()
    notifier.join()
    webhook.pause = 0
    assert tick(foundry, instance).startswith("notified: 50%")
    assert tick(foundry, instance) == "no new alerts"


def test_a_webhook_that_is_down_is_notified_later(foundry, instance, path, webhook):
    spend(path, 0.45, calls=2)
    webhook.statuses = [500]
    assert "HTTP 500" in tick(foundry, instance)
    assert tick(foundry, instance).startswith("notified: 50%")
    assert shares(webhook.lines) == ["50%", "50%", "80%"]


def test_another_budget_begins_anew(foundry, instance, path, webhook):
    spend(path, 0.6)
    spend(path, 0.4, budget=2.0)
    spend(path, 0.01)
    tick(foundry, instance)
    assert [line.split(" USD")[0] for line in webhook.lines] == [
        "50% of the budget is spent: 0.60 of 1.00",
        "50% of the budget is spent: 1.00 of 2.00",
        "80% of the budget is spent: 1.00 of 1.00",
        "95% of the budget is spent: 1.00 of 1.00",
    ]
