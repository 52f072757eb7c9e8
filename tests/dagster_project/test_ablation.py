"""The ablation's plumbing, with a launcher that hands out the base model instead of training it."""

import re
from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets.checkpoints import training
from assets.core.foundry import FoundryResource
from assets.evaluation import agents
from assets.evaluation.ablation_benchmark import measure_on_benchmark
from assets.evaluation.agents import AgentFactory
from assets.evaluation.variants import ON_REQUEST, VARIANTS
from dagster_project.run import run_lineage
from inference.backends.providers.agents import RemoteCritic, RemotePlanner
from inference.calls.progress import NullProgress
from inference.servers.instance import ServerInstance
from schemas import FoundryError
from schemas.benchmarks import BENCHMARK_RESULTS
from schemas.training import CHECKPOINTS, EVALUATIONS, RL_PLANNER
from tests.assets.benchmarks.official_files import ueval_row, write_ueval
from tests.dagster_project.conftest import trained_foundry
from tests.helpers.command import interleave
from tests.helpers.fake_launcher import FakeLauncher
from tests.inference.backends.providers.faulty_provider import KEY, provider

pytestmark = pytest.mark.long

OWN = {
    "ablation_rl_no_step",
    "ablation_rl_no_accuracy",
    "ablation_one_agent",
    "ablation_unfiltered",
    "ablation_sft_on_rl_labels",
}
LINEAGE = {"planner_sft_checkpoint", "critic_sft_checkpoint", "critic_rl_checkpoint"}
SEEDS = (0, 2)


@pytest.fixture
def foundry(trained_folder, tmp_path):
    foundry = trained_foundry(trained_folder, tmp_path / "lake")
    path = Path(foundry.profile)
    seeds = f"ablation: {{training_seeds: {list(SEEDS)}}}"
    path.write_text(re.sub(r"ablation: \{.*\}", seeds, path.read_text()))
    return foundry


@pytest.fixture
def launcher(monkeypatch):
    launcher = FakeLauncher()
    monkeypatch.setattr(training, "run_job", launcher.run_job)
    return launcher


def _failing_for_the_second_seed(launcher):
    async def run_job(context, job, settings, progress):
        if job.folder.parent.name.endswith(f"_seed_{SEEDS[1]}"):
            raise FoundryError("out of memory")
        return await launcher.run_job(context, job, settings, progress)

    return run_job


def test_the_ablation_trains_its_own_checkpoints_and_evaluates_every_variant(
    foundry, instance, launcher, monkeypatch
):
    run_lineage(foundry, instance, shards=1)
    assert not launcher.jobs, "the lineage is trained"
    evaluated = instance.get_latest_materialization_event(dg.AssetKey("evaluation"))
    agreed = evaluated.asset_materialization.metadata["people/agreement"].value
    assert "full_rl | critic and scorer |" in agreed and "critic and people | 0 | –" in agreed
    before = foundry.rows(EVALUATIONS)
    with monkeypatch.context() as patch, pytest.raises(FoundryError, match="out of memory"):
        patch.setattr(training, "run_job", _failing_for_the_second_seed(launcher))
        run_lineage(foundry, instance, shards=1, select=["ablation"])
    seeds = {row.training_seed for row in foundry.rows(EVALUATIONS)}
    assert seeds == {None, SEEDS[0]}, "a finished seed is stored before the next one is trained"
    run_lineage(foundry, instance, shards=1, select=["ablation"])
    rows = foundry.rows(EVALUATIONS)
    assert [row for row in rows if row.training_seed is None] == before
    found = {(row.variant, row.training_seed) for row in rows}
    others = {name for name, each in VARIANTS.items() if each.planner == RL_PLANNER}
    others |= set(ON_REQUEST)
    own = {name for name, variant in VARIANTS.items() if not variant.provider} - others
    assert found >= {(name, seed) for name in own for seed in SEEDS}
    assert not {name for name, _ in found} & (set(VARIANTS) - own), "not in the profile"
    assert all(row.benchmark.endswith("-test") for row in rows if row.training_seed is not None)
    agents = {(row.planner, row.critic) for row in rows if row.variant == "full_rl_sampled"}
    assert all(critic.endswith("-sampled") for _, critic in agents)
    assert {planner for planner, _ in agents} == {r.planner for r in rows if r.variant == "full_rl"}
    names = {row.name for row in foundry.rows(CHECKPOINTS)}
    seeded = {f"{name}_seed_2" for name in OWN | LINEAGE}
    assert names == {"base_model", *LINEAGE, *OWN, *seeded}
    assert len(launcher.jobs) == len(OWN) + len(seeded)
    event = instance.get_latest_materialization_event(dg.AssetKey("ablation"))
    metadata = event.asset_materialization.metadata
    assert "| t_max_1 < t_max_3 | +10.2 |" in metadata["relations"].value
    assert "+ critic, reinforced" in metadata["agents"].value
    assert not run_lineage(foundry, instance, shards=1, select=["ablation"]).materialized
    assert len(launcher.jobs) == len(OWN) + len(seeded)
    text = Path(foundry.profile).read_text()
    path = Path(foundry.profile).with_name("fewer.yaml")
    path.write_text(text.replace("ablation: {", "ablation: {variants: [full_sft], "))
    fewer = FoundryResource(profile=str(path), root=foundry.root)
    run_lineage(fewer, instance, shards=1, select=["ablation"])
    seeded_rows = [row for row in fewer.rows(EVALUATIONS) if row.training_seed is not None]
    assert {(row.variant, row.training_seed) for row in seeded_rows} == {
        ("full_sft", seed) for seed in SEEDS
    }


@pytest.fixture
def hosted(foundry, tmp_path, monkeypatch):
    """A profile with an oracle and a judge at a server, and two items of UEval's form."""
    monkeypatch.setenv("TEST_KEY", KEY)
    items = [
        ueval_row("1", "art", prompt="How to build a snowman?"),
        ueval_row(
            "2", "space", prompt="How does a flower grow?", image_rubrics=["It is a flower."]
        ),
    ]
    source = write_ueval(tmp_path, items)
    profile = yaml.safe_load(Path(foundry.profile).read_text())
    variants = ["generator_only", "oracle_gemini", "oracle_gpt", "untrained", "full_rl", "t_max_5"]
    profile["evaluation"]["ablation"] = {"variants": variants}
    agent = {"model": "gpt-4.1-2025-04-14"}
    judge = {"backend": "openai", "model": {"model": "m"}}
    with provider() as server:
        server.unmet = {"It is a flower."}
        endpoint = {"url": f"{server.url}/v1", "key": "TEST_KEY"}
        profile["openai"] = {"endpoints": [endpoint], "planner": agent, "critic": agent}
        profile["benchmarks"] = {"judge": judge, "run": {"ueval": {"source": str(source)}}}
        path = tmp_path / "hosted.yaml"
        path.write_text(yaml.safe_dump(profile))
        yield server, path


def test_table_5_is_measured_on_ueval_as_it_is_printed(foundry, hosted, capsys):
    server, profile = hosted
    options = ("--profile", profile, "--home", foundry.root, "--select", "ablation")
    done = interleave(capsys, "run", *options, "--benchmark", "ueval")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    header, _, *rows = (line.strip("| ").split(" | ") for line in lines)
    table = {row[0]: dict(zip(header, row, strict=True)) for row in rows if row[0] in VARIANTS}
    gpt = table["oracle_gpt"]
    assert gpt["text, here"].startswith("100.0 [") and gpt["image, here"].startswith("50.0 [")
    assert gpt["average, here"] == "75.0"
    printed = [gpt[f"{column}, paper"] for column in ("text", "image", "average")]
    assert printed == ["63.2", "71.8", "67.5"]
    nothing = table["oracle_gemini"]  # which the profile has not
    assert [nothing[f"{column}, here"] for column in ("text", "image", "average")] == ["–"] * 3
    assert nothing["average, paper"] == "77.4"
    assert table["generator_only"]["text, here"].startswith("0.0 [")
    assert table["full_rl"]["average, here"] == table["t_max_5"]["average, here"] != "–"
    runs = foundry.home.lake.partitions(BENCHMARK_RESULTS)
    measured = {name.split("-")[1] for name in runs}
    assert measured == {"generator_only", "oracle_gpt", "untrained", "full_rl"}, "t_max_5 is that"
    asked = sum(server.answered.values())
    same = FoundryResource(profile=str(profile), root=foundry.root)
    measured_again = measure_on_benchmark(same, [VARIANTS["oracle_gpt"]], "ueval", NullProgress())
    assert all(measured_again.values())
    assert sum(server.answered.values()) == asked, "no call is made again"


def test_variants_go_through_the_servers_of_a_profile(foundry, monkeypatch):
    monkeypatch.setattr(ServerInstance, "of", lambda spec, home: spec)
    monkeypatch.setattr(agents, "CheckpointModel", None)  # nothing is loaded in this process
    profile = yaml.safe_load(Path(foundry.profile).read_text())
    profile["servers"] = {
        role: {"kind": "agents", "trained": role, "gpus": []} for role in ("planner", "critic")
    }
    Path(foundry.profile).write_text(yaml.safe_dump(profile))
    factory = AgentFactory(FoundryResource(profile=foundry.profile, root=foundry.root))
    for name in ("untrained", "full_sft_sampled", "full_rl_sampled", "full_rl"):
        asked = factory.roles(VARIANTS[name])
        assert (type(asked.planner), type(asked.critic)) == (RemotePlanner, RemoteCritic), name
