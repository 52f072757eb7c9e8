"""Shards drawn by two generators, from a profile to tables, and what another mix makes again."""

import dagster as dg
import pytest

from dagster_project.rehearsal.provider import local_provider
from dagster_project.run import run_lineage
from schemas.trajectories import ATTEMPTS, MODEL_CALLS
from tests.dagster_project.conftest import opened, tiny_foundry

pytestmark = pytest.mark.slow

STAGES = ["taxonomy", "vocabulary", "templates", "prompts", "plans", "trajectories"]
SHARDS = [f"sketchbook-{n:04}" for n in range(4)]


def run(folder, address, **weights):
    """Labels of what is materialized, the metadata of the last shard, and generators by prompt."""
    endpoints = [{"url": f"{address}/v1"}]
    foundry = tiny_foundry(
        folder,
        roles={"planner": "sketch", "generator": weights, "critic": "sketch", "scorer": "sketch"},
        images={"generator": {"model": "patches", "size": "96x96"}, "endpoints": endpoints},
        sizes={"demo": len(SHARDS)},
        bank={"shard_size": 3},
        loop={"t_max": 2},
    )
    with opened(foundry) as instance:
        made = run_lineage(foundry, instance, shards=len(SHARDS), select=STAGES).materialized
        event = instance.get_latest_materialization_event(dg.AssetKey("trajectories"))
    rows = foundry.home.lake.read(ATTEMPTS).to_pylist()
    drawn = {row["prompt_id"]: (row["shard"], row["generator"].split("/")[0]) for row in rows}
    return foundry, made, event.asset_materialization.metadata["generators"].value, drawn


def drawings(foundry):
    calls = foundry.home.lake.read(MODEL_CALLS).to_pylist()
    return {row["call_id"]: row["prompt_id"] for row in calls if row["role"] == "generator"}


def test_another_mix_draws_only_prompts_whose_generator_changes(tmp_path):
    with local_provider() as address:
        foundry, _, shown, before = run(tmp_path, address, sketch=1, images=1)
        assert {generator for _, generator in before.values()} == {"sketch", "images"}
        names = {name.split("/")[0] for name in shown}
        last = {generator for shard, generator in before.values() if shard == SHARDS[-1]}
        assert names == last and sum(shown.values()) > 0
        calls = drawings(foundry)
        _, same, *_ = run(tmp_path, address, sketch=2, images=2)
        assert not same, "the same shares"
        _, made, _, after = run(tmp_path, address, sketch=1, images=1.5)
    moved = {name for name, drawn in after.items() if drawn != before[name]}
    stale = {f"trajectories[{after[name][0]}]" for name in moved}
    assert set(made) == stale and 0 < len(stale) < len(SHARDS)
    added = {prompt for call, prompt in drawings(foundry).items() if call not in calls}
    assert added == moved
