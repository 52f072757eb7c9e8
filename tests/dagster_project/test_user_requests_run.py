"""`prompts.requests`: what users asked for is told again by the teachers, and trained on."""

import asyncio
from pathlib import Path

import pytest
import yaml

from assets.core.foundry import SHARDS, FoundryResource
from assets.trajectories.estimate import estimate
from dagster_project.run import run_lineage
from inference.generation.agent_resolver import ResolvedRoles
from inference.generation.requests import GenerationRequest
from inference.generation.runner import GenerationRunner
from interleave_foundry import query

pytestmark = pytest.mark.slow

SNOWMAN = "Show how to build a snowman in 3 steps, with captions"
SHARD = "requests-0000"


@pytest.fixture
def willing(tmp_path, profile, foundry):
    """The same lake, with a profile that trains on requests."""
    content = yaml.safe_load(Path(profile).read_text()) | {"prompts": {"requests": True}}
    path = tmp_path / "willing.yaml"
    path.write_text(yaml.safe_dump(content))
    return FoundryResource(profile=str(path), root=foundry.root)


def ask(foundry, *texts):
    async def told():
        async with GenerationRunner(foundry.home, foundry.settings.limits) as teller:
            for text in texts:
                async for _ in teller.run(GenerationRequest(text), ResolvedRoles(foundry.roles)):
                    pass

    asyncio.run(told())


def trained_on(foundry):
    texts = query(
        "select distinct text from prompts join planner_sft using (prompt_id)", foundry.home
    )
    return set(texts.text)


def test_a_request_becomes_training_data_where_it_may(foundry, willing, instance):
    ask(foundry, SNOWMAN, "quantum chromodynamics")
    run_lineage(foundry, instance, shards=1)
    assert SNOWMAN not in trained_on(foundry)

    assert (estimate(foundry, 1).trajectories, estimate(willing, 1).trajectories) == (0, 1)
    made = run_lineage(willing, instance, shards=1).materialized
    assert {"prompts", f"plans[{SHARD}]", f"scores[{SHARD}]", "planner_sft"} <= set(made)
    assert "plans[sketchbook-0000]" not in made
    assert SNOWMAN in trained_on(willing)
    asked = query("select text, split from prompts where pack = 'requests'", willing.home)
    assert asked.values.tolist() == [[SNOWMAN, "train"]]
    assert not run_lineage(willing, instance, shards=1).materialized
    assert estimate(willing, 2).trajectories == 25

    ask(willing, "Draw a red house beside a tree, then a yellow sun")
    made = run_lineage(willing, instance, shards=1).materialized
    assert f"plans[{SHARD}]" in made and "plans[sketchbook-0000]" not in made

    run_lineage(foundry, instance, shards=1)
    assert SNOWMAN not in trained_on(foundry)
    assert SHARD not in instance.get_dynamic_partitions(str(SHARDS.name))
    left = "select count(*) from {} where shard = 'requests-0000'"
    assert query(left.format("attempts"), foundry.home).iat[0, 0] == 0
    assert query(left.format("model_calls"), foundry.home).iat[0, 0] > 0
