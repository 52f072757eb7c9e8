"""`interleave doctor`: what is missing, in plain words, and an exit status for scripts."""

import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from assets.core.profile import FOLDER
from dagster_project import doctor
from dagster_project.cli.app import app
from dagster_project.doctor import diagnose
from inference import environments
from tests.helpers.ports import free_port
from warehouse import Home

KEY = "a-secret-key"
SKETCH = dict.fromkeys(("planner", "generator", "critic", "scorer"), "sketch")


class _Models(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        keys = (self.headers.get("x-goog-api-key"), self.headers.get("Authorization"))
        self.send_response(200 if KEY in keys or f"Bearer {KEY}" in keys else 401)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def provider():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Models)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def profile(folder: Path, **changes: object) -> str:
    content = yaml.safe_load((FOLDER / "sketch.yaml").read_text())
    folder.mkdir(exist_ok=True)
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return str(path)


def remote(url: str, backend: str = "openai", **more: object) -> dict:
    """The sketch profile with its planner at a provider."""
    settings = {"endpoints": [{"url": url, "key": "TEST_KEY"}], "planner": {"model": "m-1"}}
    return {"roles": SKETCH | {"planner": backend}, backend: settings} | more


def missing(name: str, home: Home) -> dict[str, str]:
    return {found.what: found.fix for found in diagnose(name, home) if found.fix}


def test_an_endpoint_has_to_take_the_key(home, tmp_path, monkeypatch):
    with provider() as url:
        monkeypatch.setenv("TEST_KEY", KEY)
        for backend in ("gemini", "openai"):
            name = profile(tmp_path / backend, **remote(url, backend))
            assert missing(name, home) == {}
        monkeypatch.delenv("TEST_KEY", raising=False)
        assert missing(name, home) == {"key TEST_KEY": "put it in: export TEST_KEY=..."}
        monkeypatch.setenv("TEST_KEY", "wrong")
        (fix,) = missing(name, home).values()
    assert fix == "it rejects the key in TEST_KEY: 401"


def test_nobody_answers(home, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    with provider() as url:
        pass
    ((what, fix),) = missing(profile(tmp_path, **remote(url)), home).items()
    assert what == f"{url}/models"
    assert fix.startswith("no answer (")
    assert fix.endswith("start it, or correct `openai.endpoints`")


def test_an_agent_that_is_asked_elsewhere_needs_nothing_of_the_provider(home, tmp_path):
    """Such as one that `agents serve` serves: nobody's key is missed."""
    settings = remote("http://127.0.0.1:1/v1")
    with provider() as url:
        settings["openai"]["planner"]["endpoints"] = [{"url": url}]
        assert missing(profile(tmp_path, **settings), home) == {}


def test_a_budget_wants_prices(home, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    with provider() as url:
        name = profile(tmp_path, **remote(url, budget={"usd": 1}))
        assert missing(name, home) == {
            "planner: m-1 at openai": "the profile has a budget: add `prices.m-1`"
        }


def test_who_expands_the_banks_is_looked_at(home, tmp_path, monkeypatch):
    monkeypatch.delenv("TEST_KEY", raising=False)
    expansion = {"backend": "gemini", "model": {"model": "m-2"}}
    with provider() as url:
        endpoints = {"gemini": {"endpoints": [{"url": url, "key": "TEST_KEY"}]}}
        named = profile(tmp_path, prompts={"expansion": expansion}, budget={"usd": 1}, **endpoints)
        assert missing(named, home) == {
            "expander: m-2 at gemini": "the profile has a budget: add `prices.m-2`",
            "key TEST_KEY": "put it in: export TEST_KEY=...",
        }


def test_what_training_needs(home, tmp_path):
    named = {"source": "huggingface", "model": "no/such-model", "revision": "abc"}
    training = {"base_model": named, "planner_sft": {"recipe": "paper"}}
    fixes = missing(profile(tmp_path, training=training), home)
    assert any("not downloaded yet" in fix for fix in fixes.values())
    assert any(what.startswith("GPUs: ") and " of 8 " in what for what in fixes)


def test_the_command_prints_and_exits_for_scripts(home, tmp_path, monkeypatch):
    monkeypatch.delenv("TEST_KEY", raising=False)
    run = CliRunner().invoke
    fine = run(app, ["doctor", "--home", home.root])
    assert fine.exit_code == 0
    assert "profile sketch: complete" in fine.output
    with provider() as url:
        name = profile(tmp_path, **remote(url))
        ill = run(app, ["doctor", "--profile", name, "--home", home.root])
    assert ill.exit_code == 1
    assert "missing key TEST_KEY" in ill.output
    assert "1 of " in ill.output


def test_a_generator_in_this_process_is_looked_at(home, tmp_path):
    roles = SKETCH | {"generator": "diffusers"}
    empty = profile(tmp_path, roles=roles, diffusers={"model": "nobody/nothing"})
    assert "there are: qwen-image" in missing(empty, home)["generator nobody/nothing"]
    folder = tmp_path / "klein"
    folder.mkdir()
    (folder / "model_index.json").write_text(
        '{"_class_name": "Flux2KleinPipeline", "transformer": ["diffusers", "T"]}'
    )
    here = profile(
        tmp_path / "there", roles=roles, diffusers={"model": str(folder), "device": "cpu"}
    )
    ((what, fix),) = missing(here, home).items()
    assert what.startswith("generator klein@") and fix.startswith("weights not downloaded; ")
    (folder / "transformer").mkdir()
    (folder / "transformer" / "weights.safetensors").write_bytes(b"")
    assert missing(here, home) == {}


def test_the_members_of_a_mix_are_checked_and_who_draws_what_is_said(home, tmp_path):
    with provider() as url:
        images = {"generator": {"model": "m-1"}, "endpoints": [{"url": url}]}
        roles = SKETCH | {"generator": {"images": 1, "sketch": 2}}
        own = profile(tmp_path, roles=roles, images=images)
        named = [found.what for found in diagnose(own, home)]
    drawn = "images (weight 1), sketch (weight 2)"
    assert f"prompts are drawn by {drawn}, users' requests and evaluations by images" in named
    assert "generator: m-1 at images" in named


def test_an_ensemble_is_looked_at_member_by_member(home, tmp_path, monkeypatch):
    monkeypatch.delenv("TEST_KEY", raising=False)
    roles = SKETCH | {"scorer": "ensemble"}
    with provider() as url:
        settings = remote(url)["openai"] | {"scorer": {"model": "m-2"}}
        members = {"members": {"editscore": 2, "openai": 1}}
        words = {"prompts": str(tmp_path)}
        own = profile(tmp_path, roles=roles, ensemble=members, openai=settings, editscore=words)
        fixes = missing(own, home)
    named = {found.what for found in diagnose(own, home)}
    assert "ensemble of scorers: editscore (weight 2), openai (weight 1)" in named
    assert "scorer: m-2 at openai" in named
    assert fixes["key TEST_KEY"]
    adapter, commit = "EditScore/EditScore-Qwen3-VL-8B-Instruct", "editscore.adapter_revision"
    weights = fixes[f"scorer {adapter}, not pinned: name a commit in `{commit}`"]
    revision = "0c351dd01ed87e9c1b53cbc748cba10e6187ff3b"
    model = f"Qwen/Qwen3-VL-8B-Instruct --revision {revision}"
    assert f"Qwen/Qwen3-VL-8B-Instruct not downloaded: `hf download {model}`" in weights
    assert f"{adapter} not downloaded: `hf download {adapter}` (not pinned: the newest)" in weights
    assert "semantics.txt cannot be read" in fixes["wording of editscore"]


def test_an_open_scorer_that_is_there_is_fine(home, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    own = {"model": str(tmp_path), "adapter": None, "device": "cpu"}
    scored = profile(tmp_path, roles=SKETCH | {"scorer": "editscore"}, editscore=own)
    assert missing(scored, home) == {}


def test_variables_of_notifications_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK", "https://example.org/hook")
    monkeypatch.delenv("MAIL_PASSWORD", raising=False)
    mail = {"host": "m", "sender": "a", "to": ["b"], "user": "a", "password": "MAIL_PASSWORD"}
    own = profile(tmp_path, notifications={"webhook": "HOOK", "mail": mail})
    findings = {finding.what: finding.fix for finding in diagnose(own, Home(tmp_path / "home"))}
    assert findings["notifications: HOOK"] is None
    assert "MAIL_PASSWORD" in findings["notifications: MAIL_PASSWORD"]


@pytest.fixture
def nvidia(tmp_path, monkeypatch):
    """A machine with one GPU of 24 GiB, whose driver reports a version of CUDA."""
    known = (environments.gpus, environments.gpu_bytes, environments.driver_cuda)

    def install(cuda: str) -> None:
        program = tmp_path / "bin" / "nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        answers = "-L) echo 'GPU 0: an H100';; --query*) echo 24576;;"
        header = f"*) echo '| Driver Version: 1.2    CUDA Version: {cuda}  |';;"
        program.write_text(f'#!/bin/sh\ncase "$1" in {answers} {header} esac\n')
        program.chmod(0o755)
        for each in known:
            each.cache_clear()

    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield install
    for each in known:
        each.cache_clear()


def test_a_driver_older_than_the_pinned_cuda_is_said(home, tmp_path, nvidia):
    own = profile(tmp_path, training={"planner_sft": {"recipe": "lora"}})
    nvidia("12.8")
    ((what, fix),) = ((w, f) for w, f in missing(own, home).items() if "driver" in w)
    assert what == "NVIDIA driver: CUDA 12.8, 13.0 or newer needed" and "580" in fix
    nvidia("13.1")
    assert not any("driver" in what for what in missing(own, home))


def test_a_stage_that_no_gpu_here_holds_is_said(home, tmp_path, nvidia):
    nvidia("13.0")
    base = {"source": "huggingface", "model": "Qwen/Qwen3-VL-8B-Instruct", "revision": "abc"}
    own = profile(tmp_path, training={"base_model": base, "planner_sft": {"recipe": "lora"}})
    stages = {found.what: found.fix for found in diagnose(own, home)}
    (what,) = (what for what in stages if what.startswith("planner_sft takes"))
    assert "29 GB of a GPU" in what
    assert "it has 26 GB of a GPU here" in stages[what]
    (disk,) = (what for what in stages if what.startswith("disk: "))
    assert "for checkpoints of critic_sft" in disk


def test_agents_without_a_commit_are_named_with_what_downloads_them(home, tmp_path):
    roles = SKETCH | {"planner": "checkpoint", "critic": "checkpoint"}
    agents = {"planner": "nobody/planner", "critic": f"nobody/critic@{'0' * 40}"}
    own = profile(tmp_path, roles=roles, checkpoint=agents)
    fixes = missing(own, home)
    unpinned = "planner checkpoint: nobody/planner, not pinned: name a commit as OWNER/NAME@COMMIT"
    assert fixes[unpinned].endswith("or `hf download nobody/planner` (not pinned: the newest)")
    pinned = fixes[f"critic checkpoint: {agents['critic']}"]
    assert pinned.endswith(f"or `hf download nobody/critic --revision {'0' * 40}`")


def test_the_sampler_of_vllm_is_said(home, tmp_path, monkeypatch):
    server = {"kind": "agents", "trained": "planner", "gpus": [0]}
    own = profile(tmp_path, servers={"planner": server})
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("INTERLEAVE_ENVIRONMENTS", str(tmp_path))

    def found() -> set[str]:
        return {found.what for found in diagnose(own, home) if "vLLM" in found.what}

    assert found() == {"vLLM samples by itself: FlashInfer needs ninja and nvcc"}
    for path in (tmp_path / "ninja", tmp_path / "bin" / "nvcc"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh")
        path.chmod(0o755)
    assert found() == {
        "vLLM samples by FlashInfer, compiled by ninja and nvcc when it first starts"
    }


def test_servers_need_gpus_of_nodes(home, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "gpus_of_nodes", lambda address: [2.0, 1.0])
    monkeypatch.setenv("INTERLEAVE_LOCAL", str(tmp_path))
    command = {"kind": "command", "model": "m", "command": ["serve", "{host}", "{port}"]}
    servers = {"small": command | {"gpus": 2}, "large": command | {"gpus": 3}}
    agent = {"model": "m", "endpoints": [{"server": "small"}]}
    settings = {
        "roles": SKETCH | {"planner": "openai", "critic": "openai"},
        "servers": servers,
        "openai": {"planner": agent, "critic": agent | {"endpoints": [{"server": "large"}]}},
        "cluster": {"ray": {"address": f"http://127.0.0.1:{free_port()}"}},
    }
    found = missing(profile(tmp_path, **settings), home)
    assert "no node has more than 2" in found[next(what for what in found if "large" in what)]
    assert not any("small" in what or "INTERLEAVE_LOCAL" in what for what in found)
    assert "add nodes" in found["GPUs of the Ray cluster: 3 of 5 needed at a time"]
