"""The whole lineage through a real Dagster instance, on a shard of a few prompts."""

from pathlib import Path

import dagster as dg
import pytest

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.node import NODES
from dagster_project.definitions import definitions
from dagster_project.run import run_lineage
from dagster_project.stage_runner import QUIET
from dagster_project.stages import select_nodes
from dagster_project.staleness import report_changes
from inference.backends.providers.budget import SPENDING_FILE
from interleave_foundry import query
from schemas import FoundryError
from schemas.prompts import PROMPTS, TEMPLATES
from schemas.trajectories import ATTEMPTS, PLANS, SCORES
from tests.dagster_project.conftest import opened, tiny_foundry
from tests.helpers.spending import spend
from tests.helpers.ticks import ConditionTicks, materialize, run_job, schedule_tick
from tests.inference.backends.providers.faulty_provider import KEY, FaultSchedule, provider
from warehouse.views import refresh_views

pytestmark = pytest.mark.slow

SHARD_STAGES = [
    "taxonomy",
    "vocabulary",
    "vocabulary_expansion",
    "templates",
    "prompts",
    "plans",
    "trajectories",
    "scores",
]


@pytest.fixture
def few(tmp_path):
    """A lake of few prompts, where nothing depends on how many there are."""
    return tiny_foundry(tmp_path, bank={"shard_size": 5})


def test_a_run_makes_everything_and_a_second_one_nothing(sampled, instance):
    refresh_views(sampled.home)
    counts = query(
        "select (select count(*) from attempts) as attempts, (select count(*) from scores) as "
        "scores, (select count(*) from critic_sft) as sft, (select count(*) from planner_sft) as "
        "plans",
        sampled.home,
    ).iloc[0]
    assert counts.attempts > 25 and counts.scores == counts.attempts
    assert counts.sft > 0 and counts.plans > 0

    second = run_lineage(sampled, instance, shards=1)
    assert not second.materialized
    assert len(second.reused) == len(select_nodes([], sampled.settings))


def test_a_failed_blocking_check_stops_the_run_and_does_not_count_as_done(few, instance):
    run_lineage(few, instance, shards=1, select=["taxonomy", "vocabulary", "templates"])
    few.home.lake.write(TEMPLATES, [], "all")
    for _first_and_second in range(2):
        with pytest.raises(FoundryError, match="prompts: references_hold"):
            run_lineage(few, instance, shards=1, select=["prompts", "plans"])
    assert not few.home.lake.partitions(PLANS)


def test_a_missing_image_fails_its_check(sampled, instance):
    image = sampled.home.lake.read(ATTEMPTS)["image"][0].as_py()
    Path(sampled.home.images.url(image)).unlink()
    result = check_trajectories(sampled, instance, "sketchbook-0000")
    failed = [each for each in result.get_asset_check_evaluations() if not each.passed]
    found = [(each.check_name, each.partition) for each in failed]
    assert found == [("images_intact", "sketchbook-0000")]


def test_the_bank_grows_by_a_shard_once_all_others_are_made(few, instance):
    def grow():
        ticked = schedule_tick("grow_bank", few, instance)
        for request in ticked.run_requests:
            config = {**request.run_config, "loggers": QUIET["loggers"]}
            materialize(few, instance, SHARD_STAGES[:5], run_config=config)
        return ticked.skip_message, instance.get_dynamic_partitions(str(SHARDS.name))

    first, second = "sketchbook-0000", "sketchbook-0001"
    assert grow() == (None, [first])
    missing = "sketchbook-0000 has no scores: `make_shards` makes them, where it is switched on"
    assert grow() == (missing, [first]), "a preview or a failed night leaves no gap"
    run_job("refresh_data", few, instance, partition_key=first)
    assert grow() == (None, [first, second])


def test_missing_shards_are_made_a_few_at_once_and_within_the_budget(tmp_path, instance):
    few = tiny_foundry(tmp_path, bank={"shard_size": 5}, budget={"usd": 1})
    ticks = ConditionTicks(few, instance)
    assert not ticks.next()
    config = {**QUIET, "ops": {"prompts": {"config": {"shards": 6}}}}
    materialize(few, instance, SHARD_STAGES[:5], run_config=config)
    names = [f"sketchbook-000{number}" for number in range(6)]
    requested = ticks.next()
    shards = {node: requested[node] for node in SHARD_STAGES[5:]}
    assert shards == dict.fromkeys(SHARD_STAGES[5:], names[:4]), "a run for each shard"
    job = definitions(few).resolve_job_def("improve_agents")  # its runs are of no asset
    tags = {"dagster/sensor_name": "make_shards"}
    runs = [instance.create_run_for_job(job, tags=tags) for _ in range(3)]
    assert len(ticks.next()["plans"]) == 1, "beside those that are queued"
    for run in runs:
        instance.report_run_failed(run)
    materialize(few, instance, SHARD_STAGES[5:], partition_key=names[0])
    assert names[0] not in ticks.next()["plans"]
    spend(few.home.local / SPENDING_FILE, 1.0)
    assert not ticks.next()


def test_a_shard_that_failed_is_made_again_in_the_next_night(few, instance, monkeypatch):
    materialize(few, instance, SHARD_STAGES[:5])
    ticks, shard = ConditionTicks(few, instance), "sketchbook-0000"
    assert ticks.next()["plans"] == [shard]

    def broken(*_):
        raise FoundryError("the provider is down")

    with monkeypatch.context() as patch:
        patch.setattr(FoundryResource, "prompts_of", broken)
        materialize(few, instance, ["plans"], partition_key=shard, raise_on_error=False)
    assert "plans" not in ticks.next()
    assert ticks.next(after_days=1)["plans"] == [shard]


def test_the_launchpad_grows_the_bank(few, instance):
    for shards, expected in ((2, 2), (1, 2), (3, 3)):
        config = {**QUIET, "ops": {"prompts": {"config": {"shards": shards}}}}
        result = materialize(few, instance, SHARD_STAGES[:5], run_config=config)
        assert result.success and len(few.home.lake.partitions(PROMPTS)) == expected
    assert len(instance.get_dynamic_partitions(str(SHARDS.name))) == 3


def test_aggregates_follow_once_every_shard_is_there(few, instance, tmp_path):
    instance.add_dynamic_partitions(str(SHARDS.name), ["sketchbook-0000", "sketchbook-0001"])
    run_job("refresh_data", few, instance, partition_key="sketchbook-0000")
    ticks = ConditionTicks(few, instance)
    assert ticks.next().keys() <= set(SHARD_STAGES)
    run_job("refresh_data", few, instance, partition_key="sketchbook-0001")
    materialize(few, instance, ["reviews"])
    image = Path(few.home.images.url(few.home.lake.read(ATTEMPTS)["image"][0].as_py()))
    lost = image.rename(image.with_suffix(".lost"))
    for shard in ("sketchbook-0000", "sketchbook-0001"):
        check_trajectories(few, instance, shard)
    requested = ticks.next()
    assert not {"planner_sft", "sequences"} & requested.keys(), "a check of the first shard failed"
    lost.rename(image)
    check_trajectories(few, instance, "sketchbook-0000")
    followed = ["reviews"]
    while names := sorted(requested):
        followed += names
        materialize(few, instance, names)
        requested = ticks.next()
    # `prompt_audit` is of the groups that `refresh_data` makes itself.
    automatic = (node for node in NODES.values() if node.automatic and node.group != "prompts")
    assert sorted(followed) == sorted(node.name for node in automatic)
    assert few.home.lake.partitions(SCORES) == ["sketchbook-0000", "sketchbook-0001"]

    Path(few.home.lake.storage.url(f"{SCORES.name}/sketchbook-0000/part-0.parquet")).unlink()
    assert report_changes(few, instance) == ["scores[sketchbook-0000]"]
    assert not ticks.next(), "nothing is made of scores that are lost"
    run_job("refresh_data", few, instance, partition_key="sketchbook-0000")
    requested = ticks.next()
    assert "steps" in requested
    while names := sorted(requested):
        materialize(few, instance, names)
        requested = ticks.next()
    changed = {"curation": {"split": {"theta": 0.1}}, "prompts": {"audit": {"sample": 7}}}
    ticks.reload(tiny_foundry(tmp_path, few.root, **changed))
    requested = ticks.next()
    assert {"steps", "critic_rl", "exports"} <= requested.keys(), "they follow their settings"
    assert "prompt_audit" not in requested, "which may ask a model"
    assert not ticks.next()


def check_trajectories(foundry, instance, shard):
    checks = dg.AssetSelection.checks_for_assets("trajectories")
    tags = {"dagster/partition": shard}
    return materialize(foundry, instance, checks, tags=tags, raise_on_error=False)


@pytest.mark.long
def test_growing_the_bank_processes_only_the_new_shard_whose_rows_equal_those_of_parallel_ones(
    sampled, instance, tmp_path
):
    grown = run_lineage(sampled, instance, shards=2)
    new = [name for name in grown.materialized if name.startswith("trajectories")]
    assert new == ["trajectories[sketchbook-0001]"]
    assert "trajectories[sketchbook-0000]" in grown.reused
    assert {"steps", "critic_sft"} <= set(grown.materialized)

    parallel = FoundryResource(profile=sampled.profile, root=str(tmp_path / "parallel"))
    with opened(parallel) as other:
        result = run_lineage(parallel, other, shards=2, jobs=2, select=SHARD_STAGES)
    assert {f"scores[sketchbook-000{n}]" for n in (0, 1)} <= set(result.materialized)
    hashes = [one.home.lake.content_hash(SCORES, "sketchbook-0001") for one in (sampled, parallel)]
    assert hashes[0] == hashes[1]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_shard_that_fails_for_good_holds_back_no_other(few, instance, jobs):
    run_lineage(few, instance, 2, SHARD_STAGES[:5])
    journal = Path(few.root, "journals", "plans", "sketchbook-0000.jsonl")
    journal.parent.mkdir(parents=True)
    journal.write_text("damaged\n")
    lines: list[str] = []
    with pytest.raises(FoundryError, match=r"^sketchbook-0000 failed: .*: damaged"):
        run_lineage(few, instance, 2, ["plans"], lines.append, jobs=jobs)
    [failure] = [line for line in lines if "failed, the others go on" in line]
    assert f"{journal}:1: damaged" in failure and "\n" not in failure
    assert few.home.lake.partitions(PLANS) == ["sketchbook-0001"]
    journal.unlink()
    run_lineage(few, instance, 2, ["plans"])
    assert few.home.lake.partitions(PLANS) == ["sketchbook-0000", "sketchbook-0001"]


def test_the_generator_works_while_prompts_are_planned(tmp_path, monkeypatch):
    """Where the trajectories follow in the same run."""
    monkeypatch.setenv("TEST_KEY", KEY)
    with provider(FaultSchedule(latency=0.02)) as server:
        endpoints = {"endpoints": [{"url": f"{server.url}/v1", "key": "TEST_KEY"}]}
        agents = {role: {"model": "m-1"} for role in ("planner", "critic")}
        foundry = tiny_foundry(
            tmp_path,
            roles={**dict.fromkeys(agents, "openai"), "generator": "images", "scorer": "sketch"},
            openai=endpoints | agents,
            images=endpoints | {"generator": {"model": "m-2", "dialect": "vllm-omni"}},
            limits={"agents": 1},
            bank={"shard_size": 6},
        )
        with opened(foundry) as instance:
            run_lineage(foundry, instance, 1, SHARD_STAGES[:6])
            assert not any(map(is_drawing, server.bodies))
            server.bodies.clear()
            foundry.home.journal("plans", "sketchbook-0000").remove()
            run_lineage(foundry, instance, 1, SHARD_STAGES[5:7], force=True)
    planned = [n for n, body in enumerate(server.bodies) if "Request:" in str(body)]
    drawn = [n for n, body in enumerate(server.bodies) if is_drawing(body)]
    assert drawn[0] < planned[-1]


def is_drawing(body):
    return "prompt" in body


@pytest.mark.long
def test_processes_share_the_calls_that_a_server_admits(tmp_path, monkeypatch):
    """Two processes, each of which has one of the two calls under way that it admits."""
    monkeypatch.setenv("TEST_KEY", KEY)
    with provider(FaultSchedule(latency=0.7)) as server:
        endpoint = {"url": f"{server.url}/v1", "key": "TEST_KEY", "concurrency": 2}
        planner = {"endpoints": [endpoint], "planner": {"model": "m-1"}}
        roles = {"planner": "openai", "generator": "sketch", "critic": "sketch", "scorer": "sketch"}
        foundry = tiny_foundry(tmp_path, roles=roles, openai=planner, bank={"shard_size": 6})
        lines: list[str] = []
        with opened(foundry) as instance:
            run_lineage(foundry, instance, 3, SHARD_STAGES[:6], lines.append, jobs=3)
    assert server.max_active == 2
    assert "Materializing 3 partitions, 2 at a time" in lines
    assert len(foundry.home.lake.partitions(PLANS)) == 3
