"""A shard scored by an ensemble of two real scorers, from a profile to SQL."""

import dagster as dg
import pytest

from dagster_project.run import run_lineage
from interleave_foundry import query
from schemas.trajectories import MEMBER_SCORES, SCORES
from tests.dagster_project.conftest import opened, tiny_foundry
from tests.helpers.tiny_editscore import overfit, settings, short_prompts, tiny_model
from warehouse.views import refresh_views

pytestmark = pytest.mark.long

STAGES = ["taxonomy", "vocabulary", "templates", "prompts", "plans", "trajectories", "scores"]
SKETCH = {"planner": "sketch", "generator": "sketch", "critic": "sketch", "scorer": "sketch"}
TINY = {"bank": {"shard_size": 6}, "sketch": {"picture_size": 96, "scorer_noise": 1.0}}


def run(foundry):
    with opened(foundry) as instance:
        outcome = run_lineage(foundry, instance, shards=1, select=STAGES)
        event = instance.get_latest_materialization_event(dg.AssetKey("scores"))
    refresh_views(foundry.home)
    return outcome, event.asset_materialization.metadata


@pytest.fixture(scope="module")
def editscore(tmp_path_factory):
    folder = tmp_path_factory.mktemp("editscore")
    model, prompts = tiny_model(folder / "model"), short_prompts(folder / "words")
    overfit(model, prompts)
    return settings(model, prompts=prompts).model_dump(mode="json")


def test_an_ensemble_from_a_profile_to_sql(tmp_path, editscore):
    plain = tiny_foundry(tmp_path, **TINY)
    first, shown = run(plain)
    assert "scores[sketchbook-0000]" in first.materialized
    assert not plain.home.lake.partitions(MEMBER_SCORES)
    assert "agreement" not in shown

    both = tiny_foundry(
        tmp_path,
        **TINY,
        roles=SKETCH | {"scorer": "ensemble"},
        ensemble={"members": {"sketch": 1, "editscore": 3}},
        editscore=editscore,
    )
    second, shown = run(both)
    assert "scores[sketchbook-0000]" in second.materialized
    assert "plans[sketchbook-0000]" in second.reused
    counts = query(
        "SELECT member, count(*) AS n, count(overall) AS graded FROM member_scores GROUP BY 1",
        both.home,
    )
    attempts = both.home.lake.rows(SCORES)
    assert set(counts.member) == {"sketch", "editscore"}
    assert set(counts.n) == {attempts}
    assert counts.graded.min() > 0
    wrong = query(
        """
        SELECT count(*) AS n FROM scores JOIN (
            SELECT trajectory_id, step_number, iteration,
                   sum(weight * edit_success) / sum(weight) AS edit_success,
                   sum(weight * artifacts) / sum(weight) AS artifacts
            FROM member_scores WHERE refusal IS NULL GROUP BY ALL
        ) AS mean USING (trajectory_id, step_number, iteration)
        WHERE abs(scores.edit_success - mean.edit_success) > 1e-9
           OR abs(scores.artifacts - mean.artifacts) > 1e-9
           OR scorer NOT LIKE 'ensemble/editscore*3+sketch*1-%'
        """,
        both.home,
    )
    assert wrong.n[0] == 0
    calls = query(
        "SELECT backend, count(*) AS n FROM model_calls "
        "WHERE role = 'scorer' AND asset = 'scores' GROUP BY 1 ORDER BY 1",
        both.home,
    )
    assert list(calls.backend) == ["editscore", "sketch"]
    assert list(calls.n) == [attempts, attempts]  # those of the first run are not made again
    assert "editscore and sketch" in shown["agreement"].value

    third, _ = run(both)
    assert not third.materialized

    run(plain)
    assert not plain.home.lake.partitions(MEMBER_SCORES)
