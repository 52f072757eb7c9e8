"""Costs in the studio: sums of the ledger, and the budget."""

import pytest
from playwright.sync_api import expect

from inference.backends.providers.budget import SPENDING_FILE
from inference.backends.providers.settings import BudgetSettings
from inference.generation import generation_sink
from schemas.trajectories import MODEL_CALLS
from tests.helpers.ledger import START, model_call
from tests.helpers.spending import spend
from tests.inference.service.running_service import (
    HOUSE,
    SNOWMAN,
    error_of,
    running_service,
    wait_until,
)
from tests.inference.service.studio.studio_page import (
    BROWSER,
    assert_readable,
    open_page,
    open_studio,
)
from warehouse import Home

UNPRICED = {"cost_usd": None, "input_tokens": None, "output_tokens": None}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two days of calls, of which one has no price, and 60 of 100 USD spent."""
    home = Home(str(tmp_path_factory.mktemp("home")))
    calls = [
        model_call(1),
        model_call(2, started_at=START.replace(day=21), shard="a-0001", retries=2),
        model_call(3, model=HOSTILE, **UNPRICED),
    ]
    home.lake.write(MODEL_CALLS, calls, "trajectories-a-0000")
    spend(home.local / SPENDING_FILE, 60.0, budget=100.0)
    return home


@pytest.fixture(scope="module")
def service(home):
    with running_service(home, budget=BudgetSettings(usd=100)) as service:
        yield service


def test_sums_and_budget(service):
    costs = service.get("/studio/costs").json()
    assert (costs["total"]["cost_usd"], costs["total"]["unpriced"]) == (1.0, 1)
    assert costs["total"]["gpu_hours"] is None
    shards = {group["name"]: group["calls"] for group in costs["tables"]["shard"]["groups"]}
    assert shards == {"a-0000": 2, "a-0001": 1}
    budget = costs["budget"]
    assert (budget["usd"], budget["spent"], budget["reserved"]) == (100, 60, 0)
    assert [alert["share"] for alert in budget["alerts"]] == [0.5]


def test_a_first_day(service):
    later = service.get("/studio/costs", params={"since": "2026-11-21"}).json()
    assert later["total"]["calls"] == 1
    response = service.get("/studio/costs", params={"since": "yesterday"})
    assert "since" in error_of(response, 400)["message"]


def test_of_several_keys_each_reads_its_own_costs(tmp_path, monkeypatch):
    """Also where they sent the same text, so that their calls are alike and in one partition."""

    def costs(key):
        headers = {"Authorization": f"Bearer {key}"}
        return service.get("/studio/costs", headers=headers).json()

    monkeypatch.setattr(generation_sink, "_FLUSH_SECONDS", 0.1)
    home, budget = Home(str(tmp_path)), BudgetSettings(usd=100)
    home.lake.write(MODEL_CALLS, [model_call(1)], "trajectories-a-0000")
    with running_service(home, keys=("one", "two", "none"), budget=budget) as service:
        sent = [("one", HOUSE), ("two", HOUSE), ("two", SNOWMAN)]
        made = [service.client(key=key).responses.create(input=text) for key, text in sent]
        usage = [response.interleave["usage"].values() for response in made]
        calls = [sum(role["calls"] for role in roles) for roles in usage]
        wait_until(lambda: costs("two")["total"]["calls"] == calls[1] + calls[2])
        one, none = costs("one"), costs("none")
    assert (one["total"]["calls"], none["total"]["calls"]) == (calls[0], None)
    assert one["own"] and one["budget"] is None and "a-0000" not in str(one["tables"])


def test_a_home_without_calls_or_budget(tmp_path):
    with running_service(Home(str(tmp_path))) as service:
        costs = service.get("/studio/costs").json()
    assert costs["total"]["calls"] is None and costs["budget"] is None


class TestPage:
    pytestmark = BROWSER

    def test_it_shows_sums_budget_and_a_first_day(self, browser, service):
        with open_page(browser, service.url, 360, 740) as page:
            page.get_by_role("link", name="Costs").click()
            expect(page.get_by_text("2 days, 2026-11-20 to 2026-11-21.")).to_be_visible()
            expect(page.get_by_text("60.00 of 100.00 USD spent")).to_be_visible()
            expect(page.get_by_text("Alerts at 50 % ✓, 80 %, 95 %")).to_be_visible()
            models = page.get_by_role("region", name="By model")
            priced = models.get_by_role("row").filter(has_text="openai/m-1")
            expect(priced.get_by_role("cell").nth(1)).to_have_text("2")
            cost = priced.get_by_role("cell").first.bounding_box()
            assert cost["x"] + cost["width"] <= 360, "the cost is out of view"
            unpriced = models.get_by_role("row").filter(has_text=HOSTILE)
            expect(unpriced.get_by_role("cell").nth(0)).to_have_text("–")
            expect(page.get_by_label("Totals").get_by_text("1.00+")).to_be_visible()
            expect(page.get_by_role("img", name="USD by day, at most 0.50")).to_be_visible()
            assert_readable(page)
            page.get_by_label("Since").fill("2026-11-21")
            page.get_by_role("button", name="Show", exact=True).click()
            expect(page.get_by_text("1 day, 2026-11-21 to 2026-11-21.")).to_be_visible()

    def test_it_says_that_a_key_sees_its_own_requests(self, browser, tmp_path):
        with open_studio(browser, Home(str(tmp_path)), keys=("one", "two")) as page:
            page.get_by_role("link", name="Costs").click()
            page.get_by_role("dialog").get_by_label("API key").fill("one")
            page.keyboard.press("Enter")
            expect(page.get_by_text("Only stored requests of your key.")).to_be_visible()
