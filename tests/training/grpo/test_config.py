"""What verl itself makes of our command line, in its environment."""

import os
from pathlib import Path
from typing import get_args

import pytest

from inference.environments import ensure_environment
from tests.helpers.tiny_model import build_untrained
from tests.training.trainer_parsers import parse_all
from training.grpo.recipe import CriticGrpoSettings, cluster_overrides, environment, overrides
from training.tracking import Tracker, TrackingSettings

pytestmark = pytest.mark.long
PARSER = Path(__file__).parent / "parse_config.py"
# Values that YAML has, and characters that Hydra's grammar uses.
MINE = {
    "text": "it's = {a: 'b'}, [c]; \\ \\' ~ \" \\",
    "empty": "",
    "word": "true",
    "flag": True,
    "nothing": None,
    "number": 2.5e-7,
    "list": ["a b", "it's, so", 3, False, [None]],
    "deep": {"a-b": {"c.d": "\\"}},
}
# The sketch's recipe is run for real (`test_run.py`).
PAPER = {
    "paper": CriticGrpoSettings(recipe="paper"),
    "reference": CriticGrpoSettings(recipe="reference"),
    "flash": CriticGrpoSettings(recipe="paper", attention="flash_attention_2"),
    "adapters": CriticGrpoSettings(recipe="lora", tokens_per_gpu=24000),
    "cluster": CriticGrpoSettings(recipe="paper", nodes=2),
    "dev": CriticGrpoSettings(recipe="paper", dev_share=0.1, patience=3),
    "options": CriticGrpoSettings(
        recipe="paper",
        options={"+data.mine": MINE, "actor_rollout_ref.actor.entropy_coeff": "1e-3"},
    ),
}


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grpo")
    build_untrained(folder / "it's a model")
    paths = (folder / "it's a model", Path("/a b/it's"))
    cases = {name: overrides(settings, *paths, 7) for name, settings in PAPER.items()}
    variables = environment(PAPER["paper"])
    cases["cluster"] += cluster_overrides(Path("/e n/python"), variables)
    tracking = TrackingSettings(kind="wandb", project="mine")
    cases["tracked"] = overrides(PAPER["paper"], *paths, 7, tracking=tracking)
    cases["misspelt"] = [*cases["paper"], "data.train_bacth_size=3"]
    return parse_all(ensure_environment("rl", "cpu"), PARSER, cases, os.environ | variables)


def test_verl_accepts_the_large_recipes(parsed):
    for name in [name for name in PAPER if name != "flash"]:
        settings, understood = PAPER[name], parsed[name]
        assert understood.get("error") is None
        assert understood["entropy"] == [False, True] and understood["weights"] == "fp32"
        assert understood["reference"] is (settings.kl > 0)
        assert understood["data"] == "/a b/it's/rows.parquet"
        assert (understood["attention"], understood["pads"]) == ("sdpa", True)


def test_flash_attention_needs_its_package(parsed):
    """verl asks transformers for it, which refuses where it is not installed."""
    assert "FlashAttention2 doesn't seem to be installed" in parsed["flash"]["error"]


def test_verl_gets_what_one_gpu_needs(parsed):
    assert parsed["adapters"]["offload"] == [True, True]
    assert parsed["adapters"]["fused"] and not parsed["paper"]["fused"]
    assert parsed["adapters"]["tokens"] == [24000, 24000]


def test_log_probabilities_of_half_precision_have_gradients_beside_weights_of_fsdp(parsed):
    """With the plugin `verl_patches`: by itself verl 0.9.1 fails in the backward pass."""
    fused, plain = parsed["log_probs"]["fused"], parsed["log_probs"]["plain"]
    assert fused["dtype"] == "bfloat16" and max(map(abs, plain["gradient"])) > 0
    assert fused["log_probs"] == pytest.approx(plain["log_probs"], rel=0.02)
    assert fused["gradient"] == pytest.approx(plain["gradient"], rel=0.1, abs=0.01)
    assert parsed["log_probs"]["entropy"] == pytest.approx(plain["entropy"], rel=1e-4)


def test_verl_evaluates_greedily_at_every_checkpoint_and_removes_none(parsed):
    assert parsed["dev"]["evaluation"] == {
        "file": "/a b/it's/dev_rows.parquet",
        "rows": -1,
        "every": 50,
        "before": False,
        "temperature": 0,
        "n": 1,
        "kept": None,
        "callback": "StopOnRequest",
    }
    assert parsed["paper"]["evaluation"]["every"] == -1
    assert parsed["paper"]["evaluation"]["kept"] == 2


def test_a_cluster_gets_the_workers_environment(parsed):
    workers = parsed["cluster"]["workers"]
    assert workers["py_executable"] == "'/e n/python'"
    assert workers["env_vars"] == environment(PAPER["cluster"])


def test_options_of_every_kind_reach_verl(parsed):
    assert parsed["options"]["mine"] == MINE
    assert parsed["options"]["entropy_coeff"] == 1e-3


def test_verl_knows_every_tracker(parsed):
    understood = parsed["tracked"]
    assert understood["trackers"] == ["console", "file", "wandb"]
    assert understood["run"] == ["mine", "a b-it's"]
    assert {*get_args(Tracker)} - {*understood["known_trackers"]} == {"none"}


def test_verl_rejects_unknown_options(parsed):
    """So that the test above can fail."""
    assert "train_bacth_size" in parsed["misspelt"]["error"]
