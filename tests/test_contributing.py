"""The examples of CONTRIBUTING.md do what the page says."""

import asyncio
import re
from pathlib import Path

import dagster as dg
import pytest

from assets.core.foundry import FoundryResource
from assets.core.node import NODES
from assets.core.profile import load_profile
from assets.prompts.assets import PROMPT_BANK
from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import BankSettings
from inference.backends.diffusers.registry import load_registry
from inference.roles import Planner, PlanRequest
from schemas.prompts import PROMPTS
from warehouse import Home

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"
BLOCKS = dict(re.findall(r"```\w+ (\S+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))


@pytest.fixture
def written(tmp_path):
    """The YAML examples as files."""
    for name, text in BLOCKS.items():
        path = tmp_path / (name if "/" in name else f"{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def defined(*names):
    """What the Python examples define, run one after the other."""
    scope = {}
    for name in names:
        exec(compile(BLOCKS[name], f"CONTRIBUTING.md:{name}", "exec"), scope)
    return scope


def test_table(home):
    scope = defined("table")
    row = scope["NoteRow"](prompt_id="p", text="good")
    home.lake.write(scope["NOTES"], [row])
    assert home.lake.read(scope["NOTES"]).to_pylist() == [row.model_dump()]


def test_backend():
    planner = defined("backend")["OneStepPlanner"]()
    assert isinstance(planner, Planner)
    plan = asyncio.run(planner.plan(PlanRequest("A red house")))
    assert [step.prompt for step in plan.steps] == ["A red house"]


def test_generator(written):
    models = load_registry(written / "generator.yaml").models
    assert models["my-flux"].pipeline == "FluxPipeline" and "qwen-image" in models


def test_asset(written, tmp_path):
    foundry = FoundryResource(profile=str(written / "profile.yaml"), root=str(tmp_path / "lake"))
    prompt = generate_bank(load_pack("sketchbook"), BankSettings(), 1)[0]
    Home(foundry.root).lake.write(PROMPTS, [prompt], prompt.shard)
    scope = defined("table", "asset")
    try:
        done = dg.materialize(
            [dg.AssetSpec(PROMPT_BANK.name), scope["notes"]],
            selection=["notes"],
            resources={"foundry": foundry},
        )
    finally:
        NODES.pop("notes")
    assert done.success and foundry.home.lake.rows(scope["NOTES"]) == 1


def test_variant():
    assert defined("variant")["PATIENT"].with_t_max(5).t_max == 9


def test_pack(written):
    pack = load_pack(written / "pack")
    prompts = generate_bank(pack, BankSettings(), 4)
    assert {prompt.subcategory for prompt in prompts} == {"flowers", "orchard"}
    assert all(re.match(r"(Draw|Show how) a[n]? \w+ \w+", prompt.text) for prompt in prompts)


def test_profile(written, tmp_path):
    profile = load_profile(str(written / "profile.yaml"))
    assert profile.loop.t_max == 4 and profile.build(Home(tmp_path / "home")).critic
