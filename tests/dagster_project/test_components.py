"""Components by the `dg` command, in a copy of the project, as docs/components.md shows them."""

import json
import shutil
import textwrap
from pathlib import Path

import dagster as dg
import pytest
import yaml

import interleave_foundry
from assets.benchmarks.settings import BenchmarkRunSettings
from assets.core.additions import KINDS
from dagster_project import components
from tests.dagster_project.conftest import TINY_PROFILE
from tests.helpers.guides import blocks, run_script
from warehouse import Home

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "components.md"
PACKAGES = ("schemas", "warehouse", "inference", "training", "assets", "profiles")
ADDED = {"banks/garden", "benchmarks/sketch-interleaved", "servers/drawer", "imports/plans"}


def test_a_component_has_the_schema_of_the_profile():
    schema = components.BenchmarkComponent.get_model_cls().model_json_schema()
    assert schema["$defs"]["BenchmarkRunSettings"] == BenchmarkRunSettings.model_json_schema()
    assert all(issubclass(getattr(components, name), dg.Component) for name in KINDS)


@pytest.fixture
def project(tmp_path):
    """The project's folder, but for its tests and pages, with the tiny profile."""
    for name in (*PACKAGES, "interleave_foundry.py", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dagster_project", tmp_path / "dagster_project", ignore=ignored)
    (tmp_path / "tiny.yaml").write_text(textwrap.dedent(TINY_PROFILE))
    return tmp_path


@pytest.mark.long
def test_all_four_kinds_are_scaffolded_checked_and_run(project):
    setting = f"export PYTHONPATH={project} INTERLEAVE_PROFILE=tiny.yaml DO_NOT_TRACK=1\n"
    page = [text for kind, _, text in blocks(PAGE) if kind == "bash"]
    assert len(page) == 4

    def run(*commands):
        run_script("\n".join([setting, *commands]), project)

    run(page[0], "dg list components > listed", "dg check yaml")
    files = sorted((project / "dagster_project" / "defs").rglob("defs.yaml"))
    assert len(files) == 4
    assert all(len(path.read_text().splitlines()) <= 12 for path in files)
    assert all(name in (project / "listed").read_text() for name in KINDS)

    run("! dg scaffold defs ImportComponent other --kind plans --file x > output 2>&1")
    assert "literal_error" in (project / "output").read_text()
    assert not (project / "dagster_project" / "defs" / "other").exists()

    run(*page[1:], "dg check defs", "dg list defs --json > defs.json")
    read = {
        asset["asset_key"]: set(asset["dependency_keys"])
        for asset in json.loads((project / "defs.json").read_text())["assets"]
    }
    assert read.keys() >= ADDED
    assert "banks/garden" in read["taxonomy"] & read["vocabulary"] & read["templates"]
    assert "benchmarks/sketch-interleaved" in read["benchmark_answers"]
    assert "imports/plans" in read["imports"]

    def query(sql, home=".interleave"):
        return interleave_foundry.query(sql, home=Home(str(project / home))).values.tolist()

    assert query("select count(*) from prompts where pack = 'garden'") == [[25]]
    assert query("select name, kind, licence from imports") == [["plans", "planner_sft", "cc0-1.0"]]
    assert query("select distinct benchmark, of_items from benchmark_results") == [
        ["sketch-interleaved", 4]
    ]
    run("interleave run --select imports,+prompts > output")
    assert "\n0 materialized" in (project / "output").read_text()

    # The pack's trajectories, drawn by the server.
    garden = project / "dagster_project" / "defs" / "garden" / "defs.yaml"
    garden.write_text("type: dagster_project.components.PackComponent\n")
    profile = yaml.safe_load(TINY_PROFILE) | {"pack": "garden", "bank": {"shard_size": 3}}
    profile["roles"]["generator"] = "images"
    generator = {"model": "sketch", "size": "96x96"}
    profile["images"] = {"generator": generator, "endpoints": [{"server": "drawer"}]}
    (project / "tiny.yaml").write_text(yaml.safe_dump(profile))
    assets = "taxonomy,vocabulary,templates,prompts,plans,trajectories"
    run(f"interleave run --home drawn --select {assets}")
    run("interleave servers --home drawn --stop drawer")
    drawn = "select bool_and(generator like 'images/sketch%') from attempts"
    assert query(drawn, "drawn") == [[True]]

    # Now both the profile and the component have the server.
    profile["servers"] = {"drawer": {"kind": "images", "model": "sketch", "gpus": 0}}
    (project / "tiny.yaml").write_text(yaml.safe_dump(profile))
    for command in ("dg check defs", "interleave run --select prompts"):
        run(f"! {command} > output 2>&1")
        output = (project / "output").read_text()
        assert "tiny.yaml:1: document: Value error" in output
        assert "drawer/defs.yaml brings `servers.drawer`" in output
