"""What verl itself makes of our command line, in its environment."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from training.environments import ensure_environment
from training.grpo.recipe import RunPaths, environment, overrides
from training.grpo.settings import GrpoSettings

pytestmark = pytest.mark.slow
PARSER = Path(__file__).parent / "parse_config.py"
PLACES = RunPaths(*(Path(f"/a b/it's/{name}") for name in ("m", "d", "c", "h", "r")))


def parsed(settings: GrpoSettings, *more: str) -> dict:
    command = [
        str(ensure_environment("rl", "cpu")),
        str(PARSER),
        *overrides(settings, PLACES, 7),
        *more,
    ]
    variables = os.environ | environment(settings) | {"VERL_USE_EXTERNAL_MODULES": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "settings",
    [GrpoSettings(recipe="paper"), GrpoSettings(recipe="paper", kl=1e-3)],
    ids=["paper", "paper with divergence"],
)
def test_verl_accepts_the_papers_recipe(settings):
    """The sketch's is run for real (`test_grpo_run.py`)."""
    understood = parsed(settings)
    assert understood["device"] == "cuda" and understood["micro_batch"] == 2
    assert understood["n"] == 8 and understood["mini_batch"] == 8
    assert understood["clip"] == [0.2, 0.3, 3.0]
    assert understood["learning_rate"] == settings.learning_rate
    assert understood["reference"] is (settings.kl > 0)
    assert understood["rollout"] == "vllm"
    assert understood["data"] == "/a b/it's/d"


def test_verl_rejects_what_it_does_not_know():
    """So that the test above can fail."""
    with pytest.raises(subprocess.CalledProcessError) as error:
        parsed(GrpoSettings(), "data.train_bacth_size=3")
    assert "train_bacth_size" in error.value.stderr
