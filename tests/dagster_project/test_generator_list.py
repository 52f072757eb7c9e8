"""`interleave generator list`: which models can draw here, and what the others lack."""

import json

import pytest
import yaml
from huggingface_hub import constants
from typer.testing import CliRunner

from dagster_project.cli.app import app
from inference.backends.diffusers import registry
from inference.backends.diffusers.registry import load_registry
from tests.dagster_project.conftest import tiny_foundry

NAME, COMMIT = "flux2-klein-9b", "92196c8e11f7b6cf2b7493e037d8c5345c559216"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of Hugging Face, and no key of Google's."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    return tmp_path / "hub"


def listed(profile="sketch"):
    done = CliRunner(env={"COLUMNS": "220"}).invoke(
        app, ["generator", "list", "--profile", profile]
    )
    assert done.exit_code == 0, done.output
    return done.output


def lacking(name):
    return registry.missing_requirements(load_registry().find(name))


def download(cache, parts):
    """A snapshot in the cache with weights for some parts of the pipeline."""
    repository = cache / "models--black-forest-labs--FLUX.2-klein-9B"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    index = {"_class_name": "Flux2KleinPipeline", "transformer": [], "text_encoder": [], "vae": []}
    (snapshot / "model_index.json").write_text(json.dumps(index))
    for part in parts:
        add_weights(snapshot / part)
    return snapshot


def add_weights(folder):
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"")


def test_every_model_is_listed_with_what_it_can_do():
    lines = {line.split()[0]: line for line in listed().splitlines() if line.strip()}
    assert set(load_registry().models) <= set(lines)
    assert "Qwen/Qwen-Image 75e0b4be04f6" in lines["qwen-image"]
    assert "text, edit, references" in lines[NAME] and COMMIT[:12] in lines[NAME]
    assert "images" in lines["omnigen2"] and "gemini" in lines["nano-banana-pro"]


def test_why_a_model_cannot_be_used_here(cache, monkeypatch):
    assert "weights not downloaded" in lacking("qwen-image")
    assert lacking("omnigen2") == ["needs a server of its own"] and "vLLM-Omni" in listed()
    assert lacking("nano-banana-pro") == ["no key GEMINI_API_KEY"]
    monkeypatch.setenv("GEMINI_API_KEY", "a-key")
    assert lacking("nano-banana-pro") == []
    snapshot = download(cache, ["transformer", "vae"])
    assert "weights not downloaded, gated" in lacking(NAME), "some are not all"
    add_weights(snapshot / "text_encoder")
    assert not any("weights" in reason for reason in lacking(NAME))


def test_the_models_of_a_profile_are_listed_too(tmp_path):
    own = tmp_path / "own.yaml"
    model = {
        "title": "Mine",
        "backend": "diffusers",
        "model": "me/mine",
        "revision": "main",
        "pinned": False,
        "pipeline": "FluxPipeline",
        "can": ["text"],
        "defaults": {"steps": 4},
        "licence": "none",
    }
    own.write_text(yaml.safe_dump({"models": {"mine": model}}))
    profile = tiny_foundry(tmp_path, diffusers={"registry": str(own)}).profile
    assert "me/mine main (not pinned)" in listed(profile)
