"""`prompts.requests`: users' requests become prompts of the training data."""

import asyncio

import pytest

from assets.core.foundry import SHARDS
from assets.trajectories.estimate import estimate
from dagster_project.run import run_lineage
from inference.generation.requests import GenerationRequest
from inference.generation.runner import GenerationRunner
from interleave_foundry import query
from tests.dagster_project.conftest import tiny_foundry

pytestmark = pytest.mark.long

SNOWMAN = "Show how to build a snowman in 3 steps, with captions"
SHARD = "requests-0000"


@pytest.fixture
def with_requests(tmp_path, sampled):
    """The same lake, with a profile that trains on requests."""
    return tiny_foundry(tmp_path, sampled.root, prompts={"requests": True})


def generate(foundry, *texts):
    async def run():
        async with GenerationRunner(foundry.home, foundry.settings.limits) as runner:
            for text in texts:
                async for _ in runner.run(GenerationRequest(text), foundry.roles):
                    pass

    asyncio.run(run())


def trained_on(foundry):
    texts = query(
        "select distinct text from prompts join planner_sft using (prompt_id)", foundry.home
    )
    return set(texts.text)


def test_requests_become_training_data_where_the_profile_says_so(sampled, with_requests, instance):
    generate(sampled, SNOWMAN, "quantum chromodynamics")
    run_lineage(sampled, instance, shards=1)
    assert SNOWMAN not in trained_on(sampled)

    assert (estimate(sampled, 1).trajectories, estimate(with_requests, 1).trajectories) == (0, 1)
    materialized = run_lineage(with_requests, instance, shards=1).materialized
    assert {"prompts", f"plans[{SHARD}]", f"scores[{SHARD}]", "planner_sft"} <= set(materialized)
    assert "plans[sketchbook-0000]" not in materialized
    assert SNOWMAN in trained_on(with_requests)
    prompts = query("select text, split from prompts where pack = 'requests'", with_requests.home)
    assert prompts.values.tolist() == [[SNOWMAN, "train"]]
    assert not run_lineage(with_requests, instance, shards=1).materialized
    assert estimate(with_requests, 2).trajectories == 25

    generate(with_requests, "Draw a red house beside a tree, then a yellow sun")
    materialized = run_lineage(with_requests, instance, shards=1).materialized
    assert f"plans[{SHARD}]" in materialized and "plans[sketchbook-0000]" not in materialized

    run_lineage(sampled, instance, shards=1)
    assert SNOWMAN not in trained_on(sampled)
    assert SHARD not in instance.get_dynamic_partitions(str(SHARDS.name))
    count = "select count(*) from {} where shard = 'requests-0000'"
    assert query(count.format("attempts"), sampled.home).iat[0, 0] == 0
    assert query(count.format("model_calls"), sampled.home).iat[0, 0] > 0
