"""The view `costs`, and sums over it: what was not measured is null, and counted."""

import json
from datetime import date, timedelta

import duckdb
import pytest

from schemas.training import CHECKPOINTS, CheckpointRow
from schemas.trajectories import MODEL_CALLS
from tests.helpers.ledger import START, model_call
from warehouse.costs import cost_report
from warehouse.sql import run_query
from warehouse.views import refresh_views

UNPRICED = {"cost_usd": None, "input_tokens": None, "output_tokens": None, "model": "free"}


def write(home, *calls, partition="trajectories-a-0000"):
    home.lake.write(MODEL_CALLS, calls, partition)


def write_training(home, name, metrics, **changes):
    row = CheckpointRow(
        name=name,
        version="v1",
        parent=None,
        dataset_version="d",
        config_hash="c",
        metrics=json.dumps(metrics),
        status="candidate",
        uri="/somewhere",
        created_at=START,
    )
    home.lake.write(CHECKPOINTS, [row.model_copy(update=changes)], f"{name}-v1")


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


def test_cached_answers_alone_cost_nothing(home):
    write(home, model_call(1, cached=True, cost_usd=0.0))
    assert cost_report(home).total.cost_usd == 0


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
        comments = client.sql("SELECT comment FROM duckdb_views() WHERE view_name = 'costs'")
        assert comments.fetchall()[0][0].startswith("What one model cost")


@pytest.mark.parametrize("home_name", ["home", "memory_home"])
def test_an_empty_home_has_no_costs(home_name, request):
    report = cost_report(request.getfixturevalue(home_name))
    assert report.total.calls is None
    assert not any(table.groups for table in report.tables.values())
