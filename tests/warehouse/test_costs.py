"""The views of `schemas/views.py`, and sums over `costs`: what was not measured is counted."""

import json
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pytest

from schemas.training import CHECKPOINTS
from schemas.trajectories import MODEL_CALLS
from tests.assets.curation.curated_world import World
from tests.helpers.checkpoint_rows import checkpoint_row
from tests.helpers.ledger import START, model_call
from warehouse import Home
from warehouse.costs import cost_report
from warehouse.sql import run_query
from warehouse.views import refresh_views

UNPRICED = {"cost_usd": None, "input_tokens": None, "output_tokens": None, "model": "free"}
CALLS = [
    {"asset": "trajectories", "role": "generator", "seconds": 2.0, "cost_usd": 0.25},
    {"asset": "trajectories", "role": "generator", "seconds": 4.0, "cost_usd": 0.5},
    {"asset": "trajectories", "role": "generator", "seconds": 9.0, "error": "no", "cost_usd": None},
    {"asset": "scores", "role": "scorer", "seconds": 1.0, "cost_usd": None},
    {"asset": "evaluation", "role": "scorer", "seconds": 1.0, "cost_usd": 8.0},
]


def write(home, *calls, partition="trajectories-a-0000"):
    home.lake.write(MODEL_CALLS, calls, partition)


def write_training(home, name, metrics, **changes):
    row = checkpoint_row(name, "v1", Path("/somewhere"))
    row = row.model_copy(update={"metrics": json.dumps(metrics), **changes})
    home.lake.write(CHECKPOINTS, [row], f"{name}-v1")


def groups(home, by, **more):
    return {group.name: group for group in cost_report(home, [by], **more).tables[by].groups}


def test_sums_of_calls(home):
    failed = {"error": "HTTP 500", "cost_usd": 0.25, "estimated_usd": 0.25, "output_tokens": None}
    cached = {"cached": True, "cost_usd": 0.0, "input_tokens": None, "output_tokens": None}
    write(home, model_call(1), model_call(2, retries=3, **failed), model_call(3, **cached))
    (row,) = run_query(home, "SELECT * FROM costs").to_pylist()
    assert row["day"] == date(2026, 11, 20)
    assert (row["asset"], row["shard"], row["model"]) == ("trajectories", "a-0000", "openai/m-1")
    assert (row["calls"], row["failed"], row["cached"], row["retries"]) == (3, 1, 1, 3)
    assert (row["input_tokens"], row["output_tokens"], row["uncounted"]) == (200, 10, 0)
    assert (row["cost_usd"], row["estimated_usd"], row["unpriced"]) == (0.75, 0.25, 0)
    assert (row["seconds"], row["images"], row["gpu_hours"]) == (6.0, 6, None)


def test_what_is_missing_is_null_and_counted(home):
    write(home, model_call(1), model_call(2, **UNPRICED), model_call(3, **UNPRICED))
    free = groups(home, "model")["openai/free"]
    assert (free.cost_usd, free.estimated_usd, free.gpu_hours) == (None, None, None)
    assert (free.output_tokens, free.uncounted, free.unpriced) == (None, 2, 2)
    total = cost_report(home).total
    assert (total.cost_usd, total.unpriced, total.output_tokens) == (0.5, 2, 10)
    write(home, model_call(1, cached=True, cost_usd=0.0))
    assert cost_report(home).total.cost_usd == 0, "cached answers alone cost nothing"


def test_trainings_have_hours_and_no_calls(home):
    write(home, model_call(1))
    write_training(home, "critic_sft", {"hours": 2, "gpu_hours": 16, "cost_usd": 32})
    write_training(home, "planner_sft", {"hours": 1})
    write_training(home, "base_model", {})
    write_training(home, "pulled", {"hours": 9, "gpu_hours": 9}, source="owner/name@1")
    assets = groups(home, "asset")
    assert set(assets) == {"trajectories", "critic_sft", "planner_sft"}
    assert (assets["critic_sft"].gpu_hours, assets["critic_sft"].cost_usd) == (16, 32)
    assert (assets["critic_sft"].calls, assets["critic_sft"].seconds) == (None, 7200)
    assert (assets["planner_sft"].gpu_hours, assets["planner_sft"].unpriced) == (None, 1)
    assert groups(home, "shard")[""].gpu_hours == 16


def test_groups_are_ordered_and_cut_and_begin_with_a_day(home):
    calls = [
        model_call(n, shard=f"a-{n:04}", cost_usd=n, started_at=START + timedelta(days=n))
        for n in range(5)
    ]
    write(home, *calls)
    report = cost_report(home, most=2)
    assert [group.name for group in report.tables["shard"].groups] == ["a-0004", "a-0003"]
    assert [group.name for group in report.tables["day"].groups] == ["2026-11-23", "2026-11-24"]
    assert report.tables["shard"].total == 5 and report.total.cost_usd == 10
    assert cost_report(home, since=date(2026, 11, 23)).total.calls == 2


def test_days_are_utc_whatever_the_client_is(home):
    write(home, model_call(1, started_at=START.replace(hour=23, minute=59)))
    refresh_views(home)
    with duckdb.connect(home.warehouse, read_only=True) as client:
        client.execute("SET timezone = 'Asia/Tokyo'")
        assert client.sql("SELECT day FROM costs").fetchall() == [(date(2026, 11, 20),)]


def test_an_empty_home_has_no_costs(memory_home):
    report = cost_report(memory_home)
    assert report.total.calls is None
    assert not any(table.groups for table in report.tables.values())


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A refined step, a step that is accepted at once, and a held-out one of another category."""
    world = World(Home(tmp_path_factory.mktemp("home")))
    world.add("refined", [(1, False), (9, True)], [(9, True)])
    world.add("other", [(4, True)], category="science")
    home = world.write()
    rows = [model_call(n, prompt_id="refined", **call) for n, call in enumerate(CALLS)]
    home.lake.write(MODEL_CALLS, rows, "trajectories-toy-0000")
    return lambda sql: run_query(home, sql).to_pylist()


def test_acceptance_by_iteration_and_category(lake):
    rows = lake("FROM acceptance")
    found = [(r["category"], r["iteration"], r["attempts"], r["accepted_share"]) for r in rows]
    assert found == [("art", 0, 2, 0.5), ("art", 1, 1, 1.0), ("science", 0, 1, 1.0)]
    assert [row["overall"] for row in rows] == [5.0, 9.0, 4.0]


def test_the_cost_of_an_accepted_step_counts_what_has_no_price(lake):
    """Evaluations are not the price of a step; what failed has none."""
    (row,) = lake("FROM step_costs")
    assert (row["category"], row["steps"], row["cost_usd"]) == ("art", 2, 0.75)
    assert (row["usd_per_step"], row["unpriced"]) == (0.375, 1)


def test_critic_and_scorer_agree_by_the_score_that_counts_as_good(lake):
    rows = {row["good_from"]: row for row in lake("FROM critic_agreement")}
    counts = ("both_accept", "critic_alone", "scorer_alone", "both_reject")
    assert [rows[5][name] for name in counts] == [2, 1, 0, 1]
    assert (rows[5]["agreement"], rows[2]["agreement"], rows[1]["scorer_alone"]) == (0.75, 1.0, 1)
    assert list(rows) == list(range(1, 11))


def test_the_gain_of_a_rewritten_prompt(lake):
    (row,) = lake("FROM refinement_gains")
    assert (row["iteration"], row["attempts"], row["gain"], row["better_share"]) == (1, 1, 8, 1)


def test_times_are_those_of_answered_calls(lake):
    rows = {(row["asset"], row["role"]): row for row in lake("FROM call_times")}
    drawing = rows["trajectories", "generator"]
    assert (drawing["calls"], drawing["mean_seconds"], drawing["median_seconds"]) == (2, 3, 3)
    assert drawing["total_hours"] == pytest.approx(6 / 3600)
