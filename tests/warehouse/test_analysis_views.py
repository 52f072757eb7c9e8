"""The views of `schemas/analysis.py`, over two trajectories and their calls."""

from contextlib import closing

import pytest

from schemas import VIEWS
from schemas.trajectories import MODEL_CALLS
from tests.assets.curation.curated_world import World
from tests.helpers.ledger import model_call
from warehouse import Home
from warehouse.sql import run_query
from warehouse.views import connect

CALLS = [
    {"asset": "trajectories", "role": "generator", "seconds": 2.0, "cost_usd": 0.25},
    {"asset": "trajectories", "role": "generator", "seconds": 4.0, "cost_usd": 0.5},
    {"asset": "trajectories", "role": "generator", "seconds": 9.0, "error": "no", "cost_usd": None},
    {"asset": "scores", "role": "scorer", "seconds": 1.0, "cost_usd": None},
    {"asset": "evaluation", "role": "scorer", "seconds": 1.0, "cost_usd": 8.0},
]


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


def test_an_empty_home_has_every_view_with_its_columns(tmp_path):
    with closing(connect(Home(tmp_path))) as connection:
        for name, view in VIEWS.items():
            found = connection.sql(f"FROM {name}")
            assert (found.columns, found.fetchall()) == (list(view.columns), []), name
