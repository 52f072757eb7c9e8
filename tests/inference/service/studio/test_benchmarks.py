"""Benchmark runs in the studio: listed, opened, compared."""

import re

import pytest
from playwright.sync_api import expect

from tests.assets.benchmarks.test_report import HOSTILE, add_run
from tests.inference.service.running_service import error_of, running_service
from tests.inference.service.studio.studio_page import (
    BROWSER,
    assert_readable,
    is_wider_than_screen,
    open_page,
    open_studio,
)
from warehouse import Home

REPORT = "/studio/benchmarks/report"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(str(tmp_path_factory.mktemp("home")))


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
    with running_service(home) as service:
        yield service


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
