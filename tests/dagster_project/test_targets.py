"""Data sets of exact sizes: `interleave run` grows the bank until they have them, or says what it
would take."""

import multiprocessing
import random
import time
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest

from assets.core.foundry import FoundryResource
from assets.curation.exports.folder import read_card
from assets.curation.sources import TrainingSources
from dagster_project.run import run_lineage
from inference.backends.providers.budget import SpendingFile
from schemas import TABLES, FoundryError
from schemas.curation import IMPORTS
from schemas.trajectories import SCORES
from tests.assets.curation.curated_world import imported_row
from tests.dagster_project.conftest import opened, tiny_foundry
from tests.helpers.ticks import schedule_tick
from tests.inference.backends.providers.faulty_provider import FAULTS, KEY, FaultSchedule, provider
from warehouse.sql import query

pytestmark = pytest.mark.slow

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.dagster_project.test_targets"])
TARGETS = {"planner_sft": 50, "critic_sft": 40, "critic_rl": 16}
SETS = ["+planner_sft", "+critic_sft", "+critic_rl"]
ANSWER = 0.002  # USD: 1000 tokens in and 100 out
PAID = {
    "sizes": {"few": 5, "full": 14},
    "bank": {"shard_size": 4},
    "loop": {"t_max": 3},
    "limits": {
        "tries": 8,
        "backoff_seconds": 0.05,
        "call_timeout_seconds": 5,
        "failure_share": 0.75,
    },
    "prices": {"m-1": {"input": 1.0, "output": 10.0}},
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)


def paid(folder, server, budget, size):
    """The home, by a profile with a budget of so many USD."""
    model = {"model": "m-1", "max_tokens": 1000}
    agents = {"planner": model, "critic": model, "scorer": model}
    endpoints = [{"url": f"{server.url}/v1", "key": "TEST_KEY"}]
    sections = PAID | {
        "roles": dict.fromkeys(agents, "openai") | {"generator": "sketch"},
        "openai": {"endpoints": endpoints, "timeout_seconds": 2, **agents},
        "targets": TARGETS,
        "budget": {"usd": budget},
    }
    profile = tiny_foundry(folder, **sections).profile
    return FoundryResource(profile=profile, root=str(folder / "home"), size=size)


def run(profile, root, size):
    """What a run has announced, and what it did."""
    lines, foundry = [], FoundryResource(profile=profile, root=root, size=size)
    with opened(foundry) as instance:
        result = run_lineage(foundry, instance, foundry.shards, SETS, lines.append)
    return result, lines


def finished_calls(home):
    """Ids of the calls with an answer, each as often as it is in a journal."""
    paths = Path(home.local, "journals").glob("*/*.jsonl")
    found = [(path.parent.name, path.stem) for path in paths]
    records = [record for each in found for record in home.journal(*each).records()]
    return Counter(record["call"]["call_id"] for record in records if record.get("answer"))


def kill_at_work(foundry, pause):
    """SIGKILL a run some time after its first new calls; whether it had work to do."""
    before = finished_calls(foundry.home)
    process = PROCESSES.Process(target=run, args=(foundry.profile, foundry.root, foundry.size))
    process.start()
    while process.is_alive() and finished_calls(foundry.home) == before:
        time.sleep(0.1)
    time.sleep(pause)
    at_work = process.is_alive()
    process.kill()
    process.join()
    return at_work


def rows(home):
    return {name: home.lake.rows(TABLES[name]) for name in TARGETS}


@pytest.fixture
def met(sampled, tmp_path):
    """The sample's shard, and targets that it is enough for together with an import."""
    curation = {"exports": {"mix": {"planner_sft": {"ours": 1, "theirs": 1.5}}}}
    targets = {"planner_sft": 27, "critic_sft": 14, "critic_rl": 6}
    sampled.home.lake.write(IMPORTS, [imported_row(n) for n in range(8)], "theirs")
    sections = {"curation": curation, "sizes": {"all": 1}, "targets": targets}
    return tiny_foundry(tmp_path, sampled.root, **sections)


def test_imports_are_counted_and_the_ui_shows_how_far_the_sets_are(met, instance):
    before = {row["row_id"] for row in met.home.lake.read(TABLES["critic_sft"]).to_pylist()}
    run_lineage(met, instance, met.shards)
    imports = TrainingSources(met.home, met.settings.curation).imported_count(TABLES["planner_sft"])
    assert 8 < imports < 16
    sets = rows(met.home)
    assert sets == {"planner_sft": 27 - imports, "critic_sft": 14, "critic_rl": 6}
    card = read_card(met.home.exports / "llamafactory")
    assert card["counts"]["planner_sft.json"] == 27, "as trained on"
    critic_rows = met.home.lake.read(TABLES["critic_sft"]).to_pylist()
    assert {row["row_id"] for row in critic_rows} < before
    assert sum(row["accepted"] for row in critic_rows) == 7
    event = instance.get_latest_materialization_event(dg.AssetKey("planner_sft"))
    shown = event.asset_materialization.metadata
    assert (shown["target"].value, shown["done"].value) == (27, 27)
    assert f"| imports | {imports} |" in shown["done/source"].value
    assert "| science | " in shown["done/category"].value
    assert shown["forecast"].value == "planner_sft 27 of 27"
    ticked = schedule_tick("grow_bank", met, instance)
    assert not ticked.run_requests and ticked.skip_message.startswith("targets are met")


@pytest.mark.long
def test_exact_sizes_with_faults_kills_and_a_budget(tmp_path):
    pauses = random.Random(5)
    with provider(FaultSchedule({kind: 0.2 / len(FAULTS) for kind in FAULTS})) as server:
        few = paid(tmp_path, server, budget=10, size="few")
        home, spending = few.home, SpendingFile.of(few.home)
        assert kill_at_work(few, pauses.uniform(0, 2))
        _, said = run(few.profile, few.root, few.size)
        assert any("more shards; " in line and "USD (90% interval" in line for line in said)

        asked, spent = sum(server.requests.values()), spending.read().spent
        poor = paid(tmp_path, server, budget=spent + 0.05, size="full")
        with pytest.raises(FoundryError, match=r"0\.05 are not spent.*a budget of [\d.]+ USD"):
            run(poor.profile, poor.root, poor.size)
        assert sum(server.requests.values()) == asked, "it stops before the money is gone"

        enough = paid(tmp_path, server, budget=3 * spent, size="full")
        before = finished_calls(home)
        assert kill_at_work(enough, pauses.uniform(0, 2))
        run(enough.profile, enough.root, enough.size)
        asked = sum(server.requests.values())
        again, _ = run(enough.profile, enough.root, enough.size)
        assert sum(server.requests.values()) == asked and not again.materialized
    assert rows(home) == TARGETS
    made = len(home.lake.partitions(SCORES))
    assert 5 < made < 14
    calls = finished_calls(home)
    assert before.keys() <= calls.keys()
    assert set(calls.values()) == {1}, "no finished call is repeated"
    assert ANSWER * server.billed["text"] <= spending.read().spent <= 3 * spent
    repeated = "select count(*) as n from critic_sft group by iteration, row_id having n > 1"
    assert query(repeated, home).empty
