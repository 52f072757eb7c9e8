"""The sets of a round: rows by origin and weight, without what occurred before."""

import json

import pytest

from assets.core.foundry import FoundryResource
from assets.curation.planner_sets import build_planner_sft
from assets.curation.sources import TrainingSources, round_partition
from assets.prompts.rounds import record_plan
from assets.rounds.data import RoundSets
from assets.rounds.safeguards import few_duplicates
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT, STEPS
from schemas.rounds import ROUND_ROWS
from schemas.trajectories import PLANS
from tests.assets.curation.curated_world import AS_IS, World, curate, records, round_plan

OLD, NEW = "toy-0000", "toy-0001"
PLAN = round_plan("toy", 1)


@pytest.fixture
def foundry(tmp_path):
    """A home with sets of one shard, and another shard that a round has made."""
    rounds = {"failure_weight": 3, "replay": 0.5}
    curation = {"split": {"theta": 1}, "critic": AS_IS}
    sections = {"pack": "interleave", "rounds": rounds, "curation": curation}
    foundry = FoundryResource(root=str(tmp_path / "home"), sections=json.dumps(sections))
    home, settings, world = foundry.home, foundry.settings.curation, World(foundry.home)
    for shard in (OLD, NEW):
        for n in range(6):
            world.add(f"{shard}-calm{n}", [(9, True)], [(8, False), (9, True)], shard=shard)
            world.add(f"{shard}-wild{n}", [(1, False), (9, True)], [(9, True)], shard=shard)
    world.add("wrong", [(2, True)], [(3, True)], shard=NEW)
    world.write()
    record_plan(home, PLAN)
    curate(home, settings, STEPS, CRITIC_SFT, CRITIC_RL, PLANNER_SFT)
    return foundry


def test_a_rounds_rows_have_their_origin_and_weight(foundry):
    home, settings = foundry.home, foundry.settings
    (plan,) = [row for row in foundry.rows(PLANS, NEW) if row.plan_id == "wrong-plan"][:1]
    retried = plan.model_copy(update={"plan_id": "again", "prompt": "draw it right"})
    counts = RoundSets(foundry, PLAN, settings.rounds, [retried]).build()
    rows = home.lake.read(ROUND_ROWS).to_pylist()
    origins = {
        name: [(r["row_id"], r["weight"]) for r in rows if r["origin"] == name]
        for name in ("failure", "new", "replay")
    }
    assert origins["failure"] == [("wrong-run/1/0/0", 3), ("wrong-run/2/0/0", 3), ("again/plan", 3)]
    assert all(weight == 1 and (NEW in name or "wrong" in name) for name, weight in origins["new"])
    assert all(weight == 1 and OLD in name for name, weight in origins["replay"])
    rl = counts["critic_rl"]
    assert rl["failure"] == 6 and rl["replay"] == round((rl["new"] + 6) / 2)
    own = [r for r in rows if r["data_set"] == "critic_rl" and r["origin"] != "replay"]
    accepted = sum(row["weight"] for row in own if row["evaluation"]["success"])
    assert accepted == 12 and rl["new"] == 18, "what is left out balances what went wrong"
    sources = TrainingSources(home, settings.curation, 1)
    trained_on = [row["row_id"] for row in sources.rows(CRITIC_RL)]
    assert trained_on.count("wrong-run/1/0/0") == 3 and len(trained_on) == rl.total()
    card = json.loads((sources.exports / "verl" / "card.json").read_text())
    assert card["counts"] == {"critic_rl.parquet": rl.total()}
    assert not few_duplicates(home, PLAN, settings.rounds.safeguards).problems


def test_rows_that_occurred_before_are_left_out(foundry):
    home, settings = foundry.home, foundry.settings
    made = build_planner_sft(home, settings.curation, [NEW])[0].read_all()
    home.lake.write(PLANNER_SFT, made.slice(2))
    counts = RoundSets(foundry, PLAN, settings.rounds).build()["planner_sft"]
    assert counts == {"new": 2, "failure": 0, "replay": 1}
    home.lake.write(PLANNER_SFT, made)
    found = few_duplicates(home, PLAN, settings.rounds.safeguards)
    assert found.problems == ["100% of the rows of planner_sft occurred before, at most 20% may"]
    assert len(records(made)) == 26


def test_rows_that_are_repeated_in_a_round_are_found(foundry):
    home, settings = foundry.home, foundry.settings
    RoundSets(foundry, PLAN, settings.rounds).build()
    place = round_partition(1, PLANNER_SFT)
    rows = home.lake.read(ROUND_ROWS, [place]).to_pylist()
    same = {name: rows[0][name] for name in ("messages", "images")}
    home.lake.write(ROUND_ROWS, [ROUND_ROWS.row(**{**row, **same}) for row in rows], place)
    (problem,) = few_duplicates(home, PLAN, settings.rounds.safeguards).problems
    assert "of the rows of planner_sft occurred before" in problem
