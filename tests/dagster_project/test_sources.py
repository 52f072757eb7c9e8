"""External assets: what a profile names elsewhere, and the versions that are observed of it."""

import json

import dagster as dg
import pytest

from dagster_project.definitions import definitions
from dagster_project.run import run_lineage
from dagster_project.sources import sources_of
from schemas import FoundryError
from tests.dagster_project.conftest import tiny_foundry
from tests.dagster_project.test_staleness import unsynced, webserver
from tests.helpers.ticks import run_job

COMMIT = "0c351dd01ed87e9c1b53cbc748cba10e6187ff3b"
PLAN = "<think>One step.</think><answer>[{'step_number': 1, 'step_name': 'Cat', 'instruction': "
PLAN += "'Draw a cat.', 'prompt': 'A cat.', 'auxiliary_text': 'None'}]</answer>"


@pytest.fixture
def foundry(tmp_path):
    """A profile that names a file of each kind, a folder and a model of the Hub."""
    (tmp_path / "wise").mkdir()
    (tmp_path / "wise" / "items.json").write_text("[]")
    (tmp_path / "requests.jsonl").write_text('{"text": "A red house"}\n')
    write_plans(tmp_path, "Draw a cat")
    base = {"source": "huggingface", "model": "owner/model", "revision": COMMIT}
    return tiny_foundry(
        tmp_path,
        imports={"plans": {"kind": "planner_sft", "file": str(tmp_path / "plans.jsonl")}},
        benchmarks={"run": {"wise": {"source": str(tmp_path / "wise")}}},
        generations={"requests": str(tmp_path / "requests.jsonl")},
        training={"base_model": base},
        curation={"exports": {"mix": {}}},
    )


def write_plans(folder, *requests):
    rows = [
        {"messages": [{"role": "user", "content": each}, {"role": "assistant", "content": PLAN}]}
        for each in requests
    ]
    (folder / "plans.jsonl").write_text("\n".join(map(json.dumps, rows)))


def observe(foundry, instance, **options):
    """A run of the schedule; returns the version of each source."""
    schedule = definitions(foundry).get_repository_def().get_schedule_def("observe_sources")
    result = run_job(schedule.job_name, foundry, instance, **options)
    events = result.get_asset_observation_events()
    observed = [event.asset_observation_data.asset_observation for event in events]
    return {each.asset_key.to_user_string(): each.data_version for each in observed}


def test_each_is_upstream_of_what_reads_it_and_has_the_version_of_its_content(
    foundry, instance, tmp_path
):
    graph = definitions(foundry).resolve_asset_graph()
    assert {
        source.key.to_user_string(): {
            key.to_user_string() for key in graph.get(source.key).child_keys
        }
        for source in sources_of(foundry)
    } == {
        "imports/plans": {"imports"},
        "benchmarks/wise": {"benchmark_answers"},
        "generations/requests": {"generations"},
        "training/base_model": {"base_model"},
    }
    first = observe(foundry, instance)
    assert len(first) == 4 and first["training/base_model"] == COMMIT
    assert observe(foundry, instance) == first
    (tmp_path / "wise" / "items.json").rename(tmp_path / "wise" / "renamed.json")
    (tmp_path / "requests.jsonl").unlink()
    second = observe(foundry, instance, raise_on_error=False)
    assert "generations/requests" not in second, "and the run failed"
    assert {key for key, version in second.items() if version != first[key]} == {"benchmarks/wise"}
    with pytest.raises(FoundryError, match=r"requests\.jsonl"):
        observe(foundry, instance)


@pytest.mark.long
def test_a_changed_file_makes_unsynced_what_a_run_reads_from_it(foundry, instance, tmp_path):
    def made():
        return run_lineage(foundry, instance, 1, ["imports"]).materialized

    assert made() == ["imports"]
    with webserver(foundry) as url:
        observe(foundry, instance)
        assert "imports" not in unsynced(url), "the run has observed what it read"
        write_plans(tmp_path, "Draw a cat", "Draw a dog")
        observe(foundry, instance)
        assert "imports" in unsynced(url)
        assert made() == ["imports"]
        assert "imports" not in unsynced(url)
    assert not made()


def test_a_profile_that_names_nothing_elsewhere_has_none(tmp_path):
    foundry = tiny_foundry(tmp_path)
    assert not sources_of(foundry)
    repository = definitions(foundry).get_repository_def()
    assert not repository.has_schedule_def("observe_sources")
    assert dg.AssetKey("imports") in repository.asset_graph.get_all_asset_keys()
