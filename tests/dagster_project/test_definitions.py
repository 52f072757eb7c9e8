"""The lineage graph as a whole: a change of assets, checks or automation shows in a diff."""

from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import dagster as dg

from assets.core.node import LINE, MAIN_LINE, NODES
from dagster_project.definitions import defs
from dagster_project.instance import PROMOTES_TAG
from dagster_project.stages import upstream_of


def test_the_graph_is_the_one_in_the_snapshot(snapshot):
    graph = defs.resolve_asset_graph()
    assets = {
        key.to_user_string(): {
            "deps": sorted(parent.to_user_string() for parent in graph.get(key).parent_keys),
            "group": graph.get(key).group_name,
            "kinds": sorted(graph.get(key).kinds),
            "owners": sorted(graph.get(key).owners),
            "partitioned": graph.get(key).is_partitioned,
            "pools": sorted(graph.get(key).pools or ()),
            "automation": graph.get(key).automation_condition is not None,
            "backfill": str(graph.get(key).backfill_policy or "-"),
            "freshness": graph.get(key).freshness_policy is not None,
            "blocking checks": sorted(check.name for check in graph.get(key).check_keys),
        }
        for key in sorted(graph.get_all_asset_keys())
    }
    assert assets == snapshot


def test_groups_follow_one_another_along_the_main_line():
    graph = defs.resolve_asset_graph()
    before: dict[str, set[str]] = {}
    for key in graph.get_all_asset_keys():
        groups = {graph.get(parent).group_name for parent in graph.get(key).parent_keys}
        before.setdefault(graph.get(key).group_name, set()).update(groups)
    followed = {group: parents - {group} for group, parents in before.items()}
    order = [*TopologicalSorter(followed).static_order()]  # raises where groups form a cycle
    assert tuple(group for group in order if group in MAIN_LINE) == MAIN_LINE
    assert all(one in followed[other] for one, other in pairwise(MAIN_LINE))
    selected = dg.AssetSelection.tag(LINE, "main").resolve(graph)
    assert {graph.get(key).group_name for key in selected} == set(MAIN_LINE)


def test_what_an_asset_reads_without_an_arrow_comes_through_one():
    graph = defs.resolve_asset_graph()
    for name, node in NODES.items():
        drawn = {parent.to_user_string() for parent in graph.get(dg.AssetKey(name)).parent_keys}
        assert drawn <= set(node.deps) <= drawn | upstream_of(drawn), name


def test_jobs_schedules_and_sensors_are_those_in_the_snapshot(snapshot):
    repository = defs.get_repository_def()
    assert {
        "jobs": sorted(job for job in repository.job_names if not job.startswith("__")),
        "schedules": {s.name: s.cron_schedule for s in repository.schedule_defs},
        "sensors": {s.name: s.default_status.value for s in repository.sensor_defs},
    } == snapshot


def test_of_runs_that_promote_one_waits_for_the_other(instance):
    repository = defs.get_repository_def()
    promoting = {
        name
        for name in repository.job_names
        if not name.startswith("__")
        and dg.AssetKey("promotion") in repository.get_job(name).asset_layer.executable_asset_keys
    }
    tagged = {
        name for name in repository.job_names if PROMOTES_TAG in repository.get_job(name).run_tags
    }
    assert promoting == {"retrain_planner", "retrain_critic", "evaluate"}
    assert tagged == {*promoting, "improve_agents"}, "a round promotes in runs of its own"
    queue = instance.get_concurrency_config().run_queue_config
    assert {"key": PROMOTES_TAG, "limit": 1} in queue.tag_concurrency_limits


def test_every_asset_documents_itself():
    graph = defs.resolve_asset_graph()
    for name, node in NODES.items():
        asset = graph.get(dg.AssetKey(name))
        assert asset.description, name
        if node.tables:
            assert "One row: " in asset.description, name
            assert "dagster/column_schema" in asset.metadata, name
            assert asset.check_keys, name


def test_every_asset_links_to_its_source():
    graph = defs.resolve_asset_graph()
    for name in NODES:
        references = graph.get(dg.AssetKey(name)).metadata["dagster/code_references"]
        (reference,) = references.code_references
        assert Path(reference.file_path).is_file() and reference.line_number > 1, name
