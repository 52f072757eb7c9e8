"""What verl itself makes of our command line, in its environment."""

import os
from pathlib import Path

import pytest

from tests.training.trainer_parsers import parse_all
from training.environments import ensure_environment
from training.grpo.recipe import GrpoSettings, environment, overrides

pytestmark = pytest.mark.slow
PARSER = Path(__file__).parent / "parse_config.py"
PATHS = (Path("/models/m"), Path("/a b/it's"))
# The sketch's recipe is run for real (`test_run.py`).
PAPER = {
    "paper": GrpoSettings(recipe="paper"),
    "paper with divergence": GrpoSettings(recipe="paper", kl=1e-3),
}


@pytest.fixture(scope="module")
def parsed():
    cases = {name: overrides(settings, *PATHS, 7) for name, settings in PAPER.items()}
    cases["misspelt"] = [*cases["paper"], "data.train_bacth_size=3"]
    variables = environment(PAPER["paper"]) | {"VERL_USE_EXTERNAL_MODULES": ""}
    return parse_all(ensure_environment("rl", "cpu"), PARSER, cases, os.environ | variables)


@pytest.mark.parametrize("name", PAPER)
def test_verl_accepts_the_papers_recipe(name, parsed):
    settings, understood = PAPER[name], parsed[name]
    assert understood["device"] == "cuda" and understood["micro_batch"] == 2
    assert understood["n"] == 8 and understood["mini_batch"] == 8
    assert understood["clip"] == [0.2, 0.3, 3.0]
    assert understood["learning_rate"] == settings.learning_rate
    assert understood["reference"] is (settings.kl > 0)
    assert understood["rollout"] == "vllm"
    assert understood["data"] == "/a b/it's/critic_rl.parquet"


def test_verl_rejects_unknown_options(parsed):
    """So that the test above can fail."""
    assert "train_bacth_size" in parsed["misspelt"]["error"]
