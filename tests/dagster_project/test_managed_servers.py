"""The lineage with servers that it starts: real Ray Serve, real vLLM, tiny models, no GPU."""

import asyncio
import textwrap

import pytest
from PIL import Image

from assets.core.foundry import FoundryResource
from dagster_project.instance import open_instance
from dagster_project.run import run_lineage
from inference.generation.agent_resolver import AgentResolver
from inference.roles import Verdict
from inference.servers.instance import server_folders
from schemas.training import EVALUATIONS, ROLLOUTS
from schemas.trajectories import ATTEMPTS
from tests.helpers.fake_launcher import FakeLauncher
from tests.inference.servers.conftest import processes_of, wait_until
from training.launch.launcher import run_job
from training.launch.supervisor import DRIVER_LOG
from training.registry import CheckpointRegistry
from training.sft import driver as sft_driver
from warehouse import EncodedImage

pytestmark = [pytest.mark.slow, pytest.mark.long]

PROFILE = """
    name: served
    description: Generator and trained agents at servers of the profile
    roles: {planner: sketch, generator: images, critic: sketch, scorer: sketch}
    pack: sketchbook
    sizes: {demo: 1}
    bank: {shard_size: 60}
    servers:
      images: {kind: images, model: sketch, gpus: []}
      critic: {kind: agents, trained: critic, gpus: []}
    images:
      endpoints: [{server: images, concurrency: 8}]
      generator: {model: sketch, size: 96x96}
    curation:
      critic: {agent_prompt: critic-brief, verdicts: {accept_at_least: 9}}
      planner: {text_prompt: planner-brief, interleaved_prompt: planner-continue-brief}
    training:
      planner_sft: {max_steps: 1, batch: 2}
      critic_sft: {max_steps: 1, batch: 2}
      critic_rl: {batch: 2, mini_batch: 2, n: 2, max_steps: 1, response_length: 32}
      answers: {planner_tokens: 24, critic_tokens: 24}
      promote_at_least: {}  # a step teaches nothing
    evaluation:
      variants: [full_rl]
      heldout: {stories: 2, verdicts: 4}
      heldout_category: {stories: 1, verdicts: 1}
      resamples: 100
"""


@pytest.fixture(scope="module")
def foundry(tmp_path_factory, vllm_python):
    folder = tmp_path_factory.mktemp("served")
    profile = folder / "served.yaml"
    profile.write_text(textwrap.dedent(PROFILE))
    foundry = FoundryResource(profile=str(profile), root=str(folder / "lake"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DAGSTER_HOME", raising=False)
        patch.setattr("assets.checkpoints.training.run_job", run_job_without_sft)
        with open_instance(foundry.home) as instance:
            try:
                run_lineage(foundry, instance, shards=1)
                yield foundry
            finally:
                stop_servers(foundry.home)


async def run_job_without_sft(context, job, settings, progress):
    """SFT needs no server: its parent is taken for what it makes."""
    run = FakeLauncher().run_job if job.module == sft_driver.__name__ else run_job
    return await run(context, job, settings, progress)


def stop_servers(home):
    for folder in server_folders(home):
        folder.stop()
    wait_until(lambda: not any(map(processes_of, server_folders(home))))


def test_one_command_ends_in_promoted_agents(foundry):
    assert foundry.rows(ATTEMPTS)
    assert all(row.image for row in foundry.rows(ROLLOUTS) if row.status == "scored")
    assert {row.variant for row in foundry.rows(EVALUATIONS)} == {"full_rl"}
    registry = CheckpointRegistry(foundry.home)
    assert registry.promoted("planner_sft_checkpoint") and registry.promoted("critic_rl_checkpoint")


def test_every_model_has_one_server(foundry):
    running = [folder.spec for folder in server_folders(foundry.home) if folder.state()]
    assert sorted(spec.name for spec in running) == ["critic", "images"]


def test_the_service_gets_promoted_agents_from_them(foundry):
    red = EncodedImage.of(Image.new("RGB", (96, 96), "red"))

    async def judge():
        async with AgentResolver(foundry.settings, foundry.home, "promoted") as resolver:
            roles = await resolver.resolve()
            return roles.names, await roles.critic.judge(None, red, "Draw a cat.", "a cat")

    names, verdict = asyncio.run(judge())
    assert names["critic"].startswith("checkpoint/critic_rl_checkpoint@")
    assert isinstance(verdict, Verdict)
    (critic,) = [f for f in server_folders(foundry.home) if f.spec.name == "critic"]
    log = (critic.path / DRIVER_LOG).read_text("utf-8")
    assert log.count("POST /v1/chat/completions") > 1
