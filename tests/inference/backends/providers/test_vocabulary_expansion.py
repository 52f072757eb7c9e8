"""Vocabulary banks expanded by a model, over real HTTP and with a real Dagster instance."""

import asyncio
import subprocess
import sys
import time

import dagster as dg
import pytest
import yaml

from assets.core.foundry import FoundryResource
from assets.prompts.assets import EXPANSION, PROMPT_BANK, load_expanded_packs, load_packs
from assets.prompts.bank import generate_bank
from assets.prompts.expansion import expand_packs
from assets.prompts.metadata import expansion_warning
from dagster_project.instance import open_instance
from dagster_project.run import run_lineage
from inference.calls.progress import NullProgress
from inference.roles import BackendError
from schemas.prompts import PROMPTS, VOCABULARY, VOCABULARY_PROPOSALS
from schemas.trajectories import MODEL_CALLS
from tests.inference.backends.providers.faulty_provider import provider

BANK = ["vocabulary_expansion", "taxonomy", "vocabulary", "templates", "prompts"]
PACK = {
    "taxonomy.yaml": {
        "title": "Zoo",
        "categories": {
            "out": {
                "title": "Out",
                "subcategories": {
                    "zoo": {"title": "Zoo", "description": "Animals.", "banks": ["animals"]},
                    "park": {"title": "Park", "description": "Plants.", "banks": ["plants"]},
                },
            }
        },
    },
    "banks/animals.yaml": {"animals": {"entity": ["otter", "red fox", "penguin", "brown bear"]}},
    "banks/plants.yaml": {"plants": {"entity": ["fern", "tulip", "oak tree", "rose bush"]}},
    "templates.yaml": {"templates": {"show": "Show {entity:a}", "three": "Three {entity:plural}"}},
}


def proposals(*terms):
    return [{"kind": "entity", "term": term, "countable": True} for term in terms]


TERMS = {
    "animals": proposals("badger", "The Otter", "**lynx**", "badgers"),
    "plants": proposals("lilac"),
}


def foundry(folder, server, backend="openai", expansion=None, **profile) -> FoundryResource:
    """A profile whose bank is expanded at the server."""
    for name, content in PACK.items():
        path = folder / "zoo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content))
    url = f"{server.url}/v1" if backend == "openai" else server.url
    pace = {"timeout_seconds": 5, "gather_seconds": 0.3, "poll_seconds": 0.05}
    settings = {
        "name": "zoo",
        "description": "A bank that grows",
        "roles": dict.fromkeys(("planner", "generator", "critic", "scorer"), "sketch"),
        "pack": str(folder / "zoo"),
        "sizes": {"demo": 1},
        "bank": {"shard_size": 10},
        "limits": {"agents": 1, "tries": 2, "backoff_seconds": 0.05},
        backend: {"endpoints": [{"url": url, "key": "TEST_KEY"}], **pace},
        "prompts": {
            "expansion": {"backend": backend, "model": {"model": "m-1"}} | (expansion or {})
        },
    }
    path = folder / f"profile-{len(list(folder.glob('*.yaml')))}.yaml"
    path.write_text(yaml.safe_dump(settings | profile))
    return FoundryResource(profile=str(path), root=str(folder / "home"))


def expand(built: FoundryResource):
    settings = built.settings.prompts.expansion
    return asyncio.run(expand_packs(built, load_packs(built), settings, NullProgress()))


def accepted(outcome):
    return [row.term for row in outcome.proposals if row.status == "accepted"]


def test_terms_are_proposed_filtered_and_priced(backend, tmp_path):
    price = {"m-1": {"input": 1.0, "output": 10.0}}
    with provider() as server:
        server.terms = TERMS
        outcome = expand(foundry(tmp_path, server, backend, prices=price, budget={"usd": 1}))
    assert accepted(outcome) == ["badger", "lilac"]
    assert [call.prompt_id for call in outcome.calls] == ["animals", "plants"]
    assert {(call.role, call.shard, call.cost_usd) for call in outcome.calls} == {
        ("expander", "zoo", 0.002)
    }
    assert not outcome.failures and expansion_warning(outcome) is None


def test_a_bank_without_a_usable_answer_keeps_its_own_terms(tmp_path):
    with provider() as server:
        server.terms, server.scripts = TERMS, ["garble"]
        outcome = expand(foundry(tmp_path / "again", server))
        assert accepted(outcome) == ["badger", "lilac"]
        assert [call.retries for call in outcome.calls] == [1, 0]
        server.scripts = ["garble", "garble"]
        outcome = expand(foundry(tmp_path, server))
    assert accepted(outcome) == ["lilac"]
    assert list(outcome.failures) == ["zoo/animals"]
    assert "no usable answer" in expansion_warning(outcome)


def test_without_any_answer_the_hand_written_bank_is_used(tmp_path):
    with provider() as server:
        built = foundry(tmp_path, server)
    outcome = expand(built)  # the server is gone
    assert list(outcome.failures) == ["zoo/animals", "zoo/plants"]
    assert "hand-written terms alone in 2 banks" in expansion_warning(outcome)
    expanded_packs, packs = load_expanded_packs(built), load_packs(built)
    assert [pack.digest for pack in expanded_packs] == [pack.digest for pack in packs]


def test_a_rejected_key_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_KEY", "wrong")
    with provider() as server, pytest.raises(BackendError, match="TEST_KEY"):
        expand(foundry(tmp_path, server))


def test_in_batch_mode_all_banks_are_one_batch(tmp_path):
    with provider() as server:
        server.terms = TERMS
        batched = {"model": {"model": "m-1", "batch": True}}
        outcome = expand(foundry(tmp_path, server, expansion=batched))
        again = expand(foundry(tmp_path, server, expansion=batched))
        sizes = [batch["size"] for batch in server.batches.values()]
    assert sizes == [2] and not server.requests
    assert accepted(outcome) == accepted(again) == ["badger", "lilac"]


KILLED = """
import asyncio, sys
from assets.core.foundry import FoundryResource
from assets.prompts.assets import load_packs
from assets.prompts.expansion import expand_packs
from inference.calls.progress import NullProgress
built = FoundryResource(profile=sys.argv[1], root=sys.argv[2])
settings = built.settings.prompts.expansion
asyncio.run(expand_packs(built, load_packs(built), settings, NullProgress()))
"""


@pytest.mark.slow
def test_after_a_kill_no_finished_call_is_made_again(tmp_path):
    with provider() as server:
        server.terms, server.scripts = TERMS, [None, "hang"]
        built = foundry(tmp_path, server)
        process = subprocess.Popen([sys.executable, "-c", KILLED, built.profile, built.root])
        while server.outcomes["hang"] == 0:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()
        outcome = expand(built)
    assert accepted(outcome) == ["badger", "lilac"]
    assert sorted(server.answered.values()) == [1, 1]


@pytest.mark.slow
def test_the_lineage_expands_its_bank_once(tmp_path):
    with provider() as server:
        server.terms = TERMS
        built = foundry(tmp_path, server)
        with open_instance(built.home) as instance:
            first = run_lineage(built, instance, shards=1, select=BANK)
            second = run_lineage(built, instance, shards=1, select=BANK)
            event = instance.get_latest_materialization_event(dg.AssetKey("vocabulary_expansion"))
    assets = first.materialized
    assert assets.index("vocabulary_expansion") < assets.index("vocabulary") and len(assets) == 5
    assert not second.materialized
    assert sum(server.answered.values()) == 2

    metadata = event.asset_materialization.metadata
    assert metadata["accepted"].value == 2
    lake = built.home.lake
    assert {"badger", "lilac", "otter"} <= set(lake.read(VOCABULARY)["term"].to_pylist())
    used = {term for terms in lake.read(PROMPTS)["terms"].to_pylist() for term in terms}
    assert "badger" in used
    assert lake.rows(MODEL_CALLS) == 2


def test_the_bank_depends_on_accepted_terms(tmp_path):
    """Only in profiles with an expansion."""
    with provider() as server:
        built, plain = (foundry(tmp_path, server), foundry(tmp_path, server, prompts={}))
        lake, instance = built.home.lake, dg.DagsterInstance.ephemeral()

        def fingerprints():
            return [PROMPT_BANK.fingerprint(one, instance, None) for one in (built, plain)]

        def prompts(one):
            return generate_bank(load_expanded_packs(one)[0], one.settings.bank, 10)

        before, hand_written = fingerprints(), prompts(plain)
        server.terms = TERMS
        lake.write(VOCABULARY_PROPOSALS, expand(built).proposals, "all")
        after = fingerprints()
    assert after[0] != before[0] and after[1] == before[1]
    assert prompts(built) != hand_written == prompts(plain)
    assert EXPANSION.in_profile(built.settings) and not EXPANSION.in_profile(plain.settings)
