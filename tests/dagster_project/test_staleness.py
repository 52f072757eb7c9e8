"""Which partitions are stale, asked for all at once: as asked one by one, for every reason."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import dagster as dg
import pytest
import yaml

from assets.core.foundry import FoundryResource
from assets.core.node import NODES
from assets.core.profile import load_profile
from bench.many_shards import SHARD_NODES, report_materializations, synthesize_shards
from dagster_project import staleness
from dagster_project.instance import PARTITION_TAG
from dagster_project.run import run_lineage
from dagster_project.stages import upstream_of
from dagster_project.staleness import is_up_to_date, report_changes, up_to_date_partitions
from schemas.prompts import PROMPTS, PromptRow
from schemas.trajectories import PLANS, SCORES, TRAJECTORIES
from tests.dagster_project.conftest import tiny_foundry
from tests.helpers.browser import query_graphql, wait_until_ready
from tests.helpers.ports import free_port
from tests.helpers.ticks import sensor_tick

SHARDS = [f"sketchbook-{number:04d}" for number in range(7)]


@pytest.fixture
def filled(foundry, instance):
    """Some shards, all up to date."""
    for shard in SHARDS:
        foundry.home.lake.write(PROMPTS, [prompt(shard)], shard)
    synthesize_shards(foundry, instance, SHARDS)
    assert all(current(foundry, instance, node) == set(SHARDS) for node in SHARD_NODES)
    return foundry


def prompt(shard: str, text: str = "Draw a house") -> PromptRow:
    place = dict.fromkeys(("pack", "category", "subcategory", "template_id"), "tiny")
    more = {"terms": [], "suffix": None, "input_images": [], "shard": shard, "split": "train"}
    return PromptRow(prompt_id=f"prompt-{shard}", text=f"{text} {shard}", **place, **more)


def current(foundry, instance, node: str) -> set[str]:
    """Those that are up to date, asked for at once; the same as asked one by one."""
    at_once = up_to_date_partitions(NODES[node], foundry, instance, SHARDS)
    each = {s for s in SHARDS if is_up_to_date(NODES[node], foundry, instance, s)}
    assert at_once == each
    return at_once


def part(foundry, table, shard) -> Path:
    return Path(foundry.home.lake.storage.url(f"{table.name}/{shard}/part-0.parquet"))


def rerun(foundry, instance, node, shard, status):
    report_materializations(foundry, instance, node, [shard])
    (run,) = instance.get_runs(limit=1)
    instance.delete_run(run.run_id) if status is None else None
    if status == "failed":
        instance.report_run_failed(run)


CHANGES = {
    "input": lambda f, i, s: f.home.lake.write(PROMPTS, [prompt(s, "Draw a tree")], s),
    "lost input": lambda f, i, s: f.home.lake.delete(PLANS, s),
    "lost file": lambda f, i, s: part(f, TRAJECTORIES, s).unlink(),
    "damaged file": lambda f, i, s: os.truncate(part(f, SCORES, s), 40),
    "failed run": lambda f, i, s: rerun(f, i, "trajectories", s, "failed"),
    "made again": lambda f, i, s: rerun(f, i, "plans", s, "succeeded"),
    "deleted run": lambda f, i, s: rerun(f, i, "scores", s, None),
}
STALE = {  # by a change of one shard
    "input": {"plans", "trajectories"},
    "lost input": {"plans", "trajectories", "scores"},
    "lost file": {"trajectories", "scores"},
    "damaged file": {"scores"},
    "failed run": {"trajectories"},
    "made again": set(),
    "deleted run": set(),  # the run before made the same
}


def test_a_change_of_a_shard_makes_that_shard_stale(filled, instance):
    fresh = {node: set(SHARDS) for node in SHARD_NODES}
    for change, shard in zip(CHANGES, SHARDS, strict=True):
        CHANGES[change](filled, instance, shard)
        for node in SHARD_NODES:
            fresh[node] -= {shard} if node in STALE[change] else set()
            assert current(filled, instance, node) == fresh[node], (change, node)


def test_other_settings_make_every_shard_stale(filled, instance, tmp_path):
    other = tiny_foundry(tmp_path, filled.root, loop={"t_max": 7})
    assert [len(current(other, instance, node)) for node in SHARD_NODES] == [0, 0, len(SHARDS)]


def test_other_code_makes_every_shard_stale(filled, instance):
    node = NODES["scores"]
    object.__setattr__(node, "format_version", 2)
    try:
        assert current(filled, instance, "scores") == set()
    finally:
        object.__setattr__(node, "format_version", 1)


@pytest.mark.parametrize("seed", range(5))
def test_any_mixture_of_changes(filled, instance, seed):
    random = Random(seed)
    for _ in range(6):
        change = random.choice(sorted(CHANGES))
        try:
            CHANGES[change](filled, instance, random.choice(SHARDS))
        except FileNotFoundError:
            continue  # an earlier change removed that file
        for node in SHARD_NODES:
            current(filled, instance, node)


def test_what_was_read_of_events_may_be_lost(filled, instance, monkeypatch):
    stored = filled.home.dagster / "materializations.sqlite"
    stored.write_bytes(b"damaged" * 1000)
    assert current(filled, instance, "plans") == set(SHARDS)
    read = []
    original = staleness._read_events
    monkeypatch.setattr(
        staleness, "_read_events", lambda *args: read.append(args[2]) or original(*args)
    )
    current(filled, instance, "plans")
    report_materializations(filled, instance, "plans", SHARDS[:1])
    current(filled, instance, "plans")
    assert [len(events) for events in read] == [0, 1]


def test_what_changed_in_the_lake_is_reported_once(filled, instance):
    assert report_changes(filled, instance) == []
    lost, damaged = SHARDS[:2]
    part(filled, TRAJECTORIES, lost).unlink()
    os.truncate(part(filled, SCORES, damaged), 40)
    assert report_changes(filled, instance) == [f"trajectories[{lost}]", f"scores[{damaged}]"]
    assert report_changes(filled, instance) == []
    assert current(filled, instance, "trajectories") == {*SHARDS} - {lost}
    synthesize_shards(filled, instance, [lost, damaged])
    assert report_changes(filled, instance) == []
    assert all(current(filled, instance, node) == set(SHARDS) for node in SHARD_NODES)


def test_what_a_run_is_making_is_not_reported(filled, instance):
    part(filled, PLANS, SHARDS[0]).unlink()
    part(filled, PLANS, SHARDS[1]).unlink()
    run = dg.DagsterRun("made", status=dg.DagsterRunStatus.STARTED, tags={PARTITION_TAG: SHARDS[0]})
    instance.add_run(run)
    assert report_changes(filled, instance) == [f"plans[{SHARDS[1]}]"]
    instance.report_run_failed(run)
    assert report_changes(filled, instance) == [f"plans[{SHARDS[0]}]"]


_STALE = "assetNodes { assetKey { path } staleStatus }"
_SHARDED = " ".join(
    f'{name}: assetNodeOrError(assetKey: {{path: ["{name}"]}}) '
    "{ ... on AssetNode { staleStatusByPartition } }"
    for name in SHARD_NODES
)
_RELOAD = "mutation { reloadWorkspace { __typename } }"


@contextmanager
def webserver(foundry) -> Iterator[str]:
    """Dagster's UI without its daemon, which would follow what a run makes."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = ["-m", "dagster_webserver", "-m", "dagster_project.definitions", "-p", str(port)]
    variables = {"DAGSTER_HOME": str(foundry.home.dagster), "INTERLEAVE_HOME": foundry.root}
    environment = os.environ | variables | {"INTERLEAVE_PROFILE": foundry.profile}
    log = Path(foundry.root).with_name("webserver.log")
    with (
        log.open("w") as out,
        subprocess.Popen([sys.executable, *command], env=environment, stderr=out) as process,
    ):
        try:
            wait_until_ready(f"{url}/server_info", process, log)
            yield url
        finally:
            process.terminate()


def unsynced(url: str) -> set[str]:
    """The assets that Dagster's UI marks so, once it has read the profile again."""
    query_graphql(url, _RELOAD)
    answer = query_graphql(url, f"{{ {_STALE} {_SHARDED} }}")
    nodes = answer["assetNodes"]
    statuses = {"/".join(node["assetKey"]["path"]): [node["staleStatus"]] for node in nodes}
    statuses |= {name: answer[name]["staleStatusByPartition"] for name in SHARD_NODES}
    return {name for name, found in statuses.items() if "STALE" in found}


def change_profile(profile: str, **sections: object) -> None:
    path = Path(profile)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | sections))
    load_profile.cache_clear()


def rerun_lineage(foundry, instance) -> set[str]:
    """The assets that `interleave run` materializes with the profile as it is now."""
    now = FoundryResource(profile=foundry.profile, root=foundry.root)
    made = run_lineage(now, instance, shards=1).materialized
    return {label.partition("[")[0] for label in made}


@pytest.mark.long
def test_a_run_makes_what_the_ui_marks_and_what_follows_from_it(foundry, instance, tmp_path):
    pack = tmp_path / "sketchbook"
    shutil.copytree("assets/prompts/packs/sketchbook", pack)
    change_profile(foundry.profile, pack=str(pack), bank={"shard_size": 12})
    everything = rerun_lineage(foundry, instance)

    def change_prompt():
        templates = pack / "templates.yaml"
        templates.write_text(templates.read_text().replace("Please help", "Kindly help"))

    rates = {"picture_size": 96, "critic": {"error": 0.2}}
    changes = {
        "threshold": lambda: change_profile(foundry.profile, curation={"split": {"theta": 0.1}}),
        "model": lambda: change_profile(foundry.profile, sketch=rates),
        "pack": change_prompt,
    }
    found = {}
    with webserver(foundry) as url:
        assert unsynced(url) == set()
        for name, change in changes.items():
            change()
            found[name] = unsynced(url)
            follow = {node for node in everything if upstream_of([node]) & found[name]}
            made = rerun_lineage(foundry, instance)
            assert found[name] <= made <= found[name] | follow, name
            assert unsynced(url) == set(), name
        part(foundry, SCORES, "sketchbook-0000").unlink()
        assert (
            "scores[sketchbook-0000]" in sensor_tick("watch_lake", foundry, instance).skip_message
        )
        found["file"] = unsynced(url)
        assert rerun_lineage(foundry, instance) == {"scores"}  # its content is as before
        assert unsynced(url) == set()
    assert {"scores", "steps"} <= found["file"] and "trajectories" not in found["file"]
    assert "steps" in found["threshold"] and "scores" not in found["threshold"]
    assert found["model"] == {"trajectories"}
    assert {"templates", "prompts"} <= found["pack"] <= everything
