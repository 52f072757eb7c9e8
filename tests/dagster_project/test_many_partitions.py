"""The UI on 1,000 partitions, with Dagster's history in Postgres: what its pages ask for."""

import json
import time
from pathlib import Path

import pytest

from bench.many_shards import report_materializations
from dagster_project.run import run_lineage
from tests.dagster_project.conftest import opened, tiny_foundry
from tests.dagster_project.postgres_server import PASSWORD, postgres, postgres_cluster
from tests.helpers.automation import wait_until
from tests.helpers.browser import dagster_ui, query_graphql

pytestmark = pytest.mark.long

SHARDS = [f"sketchbook-{number:04d}" for number in range(1_000)]
MISSING = SHARDS[:1]  # of which only prompts are made
_BANK = ["taxonomy", "vocabulary_expansion", "vocabulary", "templates", "prompts"]
_GRAPH = "{ assetNodes { assetKey { path } dependencyKeys { path } isPartitioned groupName } }"
_STATUS = """{ assetNodeOrError(assetKey: {path: ["%s"]}) { ... on AssetNode {
  partitionStats { numPartitions numMaterialized numFailed }
  assetPartitionStatuses { ... on DefaultPartitionStatuses {
    materializedPartitions unmaterializedPartitions failedPartitions } } } } }"""
_LIVE = """{ assetsLatestInfo(assetKeys: [{path: ["%s"]}]) {
  unstartedRunIds inProgressRunIds latestRun { status } latestMaterialization { partition } } }"""
_STALE = """{ assetNodes(assetKeys: [{path: ["%s"]}]) { staleStatus(partition: "%s") } }"""
_LAUNCH = """mutation { launchPartitionBackfill(backfillParams: {
  assetSelection: [{path: ["plans"]}], partitionNames: %s}) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_CHECKED = """{ assetNodeOrError(assetKey: {path: ["plans"]}) { ... on AssetNode {
  assetChecksOrError { ... on AssetChecks { checks { name partitionStatuses {
    ... on AssetCheckDefaultPartitionStatuses {
      succeededPartitions failedPartitions } } } } } } } }"""
_BACKFILL = """{ partitionBackfillOrError(backfillId: "%s") { ... on PartitionBackfill {
  status numPartitions } ... on PythonError { message } } }"""


@pytest.fixture
def ui(tmp_path, monkeypatch):
    """The UI on a home of 1,000 shards: a bank of one, and materializations of all others."""
    with postgres() as port:
        monkeypatch.setenv("THE_PASSWORD", PASSWORD)
        foundry = tiny_foundry(tmp_path, cluster=postgres_cluster(port))
        with opened(foundry) as instance:
            run_lineage(foundry, instance, len(MISSING), _BANK)
            instance.add_dynamic_partitions("shards", SHARDS)
            made = [shard for shard in SHARDS if shard not in MISSING]
            for node, shards in (("plans", made), ("trajectories", made), ("scores", made[:50])):
                report_materializations(foundry, instance, node, shards)
        with dagster_ui(Path(foundry.root), Path(foundry.profile)) as url:
            yield url


def timed(url: str, what: str, query: str) -> dict:
    started = time.perf_counter()
    answer = query_graphql(url, query)
    print(f"{what}: {time.perf_counter() - started:.2f} s")
    return answer


def status(url: str, asset: str) -> tuple[dict, dict]:
    node = timed(url, f"partitions of {asset}", _STATUS % asset)["assetNodeOrError"]
    return node["partitionStats"], node["assetPartitionStatuses"]


def test_graph_partitions_states_and_a_backfill(ui):
    nodes = timed(ui, "asset graph", _GRAPH)["assetNodes"]
    deps = {node["assetKey"]["path"][0]: node["dependencyKeys"] for node in nodes}
    assert {key["path"][0] for key in deps["trajectories"]} == {"plans"}
    stats, partitions = status(ui, "trajectories")
    assert stats == {"numPartitions": 1_000, "numMaterialized": 999, "numFailed": 0}
    assert partitions["unmaterializedPartitions"] == MISSING
    assert len(partitions["materializedPartitions"]) == 999
    assert status(ui, "scores")[0]["numMaterialized"] == 50
    (live,) = timed(ui, "live data of trajectories", _LIVE % "trajectories")["assetsLatestInfo"]
    assert live["latestMaterialization"]["partition"] == SHARDS[-1]
    for shard, expected in ((SHARDS[-1], "FRESH"), (MISSING[0], "MISSING")):
        query = _STALE % ("trajectories", shard)
        (node,) = timed(ui, f"state of {shard}", query)["assetNodes"]
        assert node["staleStatus"] == expected

    launched = timed(ui, "launch of a backfill", _LAUNCH % json.dumps(MISSING))
    backfill = launched["launchPartitionBackfill"]
    assert backfill["__typename"] == "LaunchBackfillSuccess", backfill
    started = time.perf_counter()

    def state():
        found = query_graphql(ui, _BACKFILL % backfill["backfillId"])
        return found["partitionBackfillOrError"]["status"]

    wait_until(lambda: state() in ("COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED"))
    assert state() == "COMPLETED_SUCCESS"
    print(f"backfill of one: {time.perf_counter() - started:.0f} s")
    stats, _ = status(ui, "plans")
    assert stats == {"numPartitions": 1_000, "numMaterialized": 1_000, "numFailed": 0}
    answer = timed(ui, "checks of plans", _CHECKED)["assetNodeOrError"]["assetChecksOrError"]
    expected = {"succeededPartitions": MISSING, "failedPartitions": []}
    assert answer["checks"]
    assert all(check["partitionStatuses"] == expected for check in answer["checks"]), answer
