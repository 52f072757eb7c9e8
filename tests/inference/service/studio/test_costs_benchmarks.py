"""Costs and benchmark runs of a home in the studio."""

import re

import pytest
from playwright.sync_api import expect

from inference.backends.providers.budget import SPENDING_FILE
from inference.backends.providers.settings import BudgetSettings
from inference.generation import generation_sink
from schemas.trajectories import MODEL_CALLS
from tests.assets.benchmarks.test_report import HOSTILE, add_run
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
    is_wider_than_screen,
    open_page,
    open_studio,
)
from warehouse import Home

UNPRICED = {"cost_usd": None, "input_tokens": None, "output_tokens": None}
MARKUP = "<img src=x onerror=alert(1)>"
REPORT = "/studio/benchmarks/report"


@pytest.fixture(scope="module", autouse=True)  # before the browser: it runs an event loop
def home(tmp_path_factory):
    """Two days of calls, of which one has no price, and 60 of 100 USD spent."""
    home = Home(str(tmp_path_factory.mktemp("home")))
    calls = [
        model_call(1),
        model_call(2, started_at=START.replace(day=21), shard="a-0001", retries=2),
        model_call(3, model=MARKUP, **UNPRICED),
    ]
    home.lake.write(MODEL_CALLS, calls, "trajectories-a-0000")
    spend(home.local / SPENDING_FILE, 60.0, budget=100.0)
    return home


@pytest.fixture(scope="module")
def runs(home):
    """Of two systems on one benchmark, and of one on another."""
    return [
        add_run(home, "one", [0.0, 1.0, 0.0, 1.0]),
        add_run(home, "two", [1.0, 1.0, 1.0, 0.0], words=HOSTILE),
        add_run(home, "one", [1.0], benchmark="opening"),
    ]


@pytest.fixture(scope="module")
def service(home, runs):
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


def test_runs_are_listed_with_their_headline(service, runs):
    listed = service.get("/studio/benchmarks").json()["runs"]
    assert {run["name"] for run in listed} == set(runs)
    first = next(run for run in listed if run["name"] == runs[0])
    assert (first["metric"], first["value"], first["items"]) == ("accuracy", 50.0, 4)


def test_a_report_runs_nothing_of_its_texts(service, runs):
    response = service.get(REPORT, params={"run": runs[1]})
    assert response.status_code == 200 and "<script" not in response.text
    assert response.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert "Compared item by item" in service.get(REPORT, params={"run": runs[:2]}).text


def test_other_reports_are_refused(service, runs):
    for names, status, problem in [
        (["nothing"], 404, "no benchmark run nothing"),
        (["../../secrets"], 404, "no benchmark run"),
        ([runs[0], runs[2]], 400, "different benchmarks"),
        ([runs[0]] * 3, 400, "run"),
        ([], 400, "run"),
    ]:
        response = service.get(REPORT, params={"run": names})
        assert problem in error_of(response, status)["message"]


def test_a_damaged_table_is_an_error_of_the_server(tmp_path):
    home = Home(str(tmp_path))
    run = add_run(home, "one", [1.0])
    for part in (tmp_path / "lake" / "benchmark_scores").rglob("*.parquet"):
        part.write_bytes(b"damaged")
    with running_service(home) as service:
        response = service.get(REPORT, params={"run": run})
    error_of(response, 500)
    assert str(tmp_path) not in response.text


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
            unpriced = models.get_by_role("row").filter(has_text=MARKUP)
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

    def test_runs_are_chosen_and_compared(self, browser, service, runs):
        with open_page(browser, service.url) as page:
            page.get_by_role("link", name="Benchmarks").click()
            expect(page.get_by_role("status").get_by_text("3 runs.")).to_be_visible()
            button = page.get_by_role("button", name=re.compile("Open report|Compare runs"))
            expect(button).to_be_disabled()
            assert_readable(page)
            for name in runs[:2]:
                page.get_by_role("checkbox", name=name).check()
            expect(button).to_have_text("Compare runs")
            with page.context.expect_page() as opened:
                button.click()
            expect(
                opened.value.get_by_role("heading", name="Compared item by item")
            ).to_be_visible()
            page.get_by_role("checkbox", name=runs[2]).check()
            expect(button).to_be_disabled()
            page.set_viewport_size({"width": 360, "height": 700})
            assert not is_wider_than_screen(page)

    def test_without_runs_it_says_how_to_make_one(self, browser, tmp_path):
        with open_studio(browser, Home(str(tmp_path))) as page:
            page.get_by_role("link", name="Benchmarks").click()
            expect(page.get_by_text("interleave evaluate sketch-interleaved")).to_be_visible()
            expect(page.get_by_role("button", name="Open report")).to_be_hidden()
