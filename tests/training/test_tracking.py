"""Trackers: their settings, variables without secrets, and where their curves are."""

import os
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from schemas import FoundryError
from training.settings import TrainingSettings
from training.tracking import OFFLINE, TrackingSettings, require_tracker, tracking_link

WANDB = TrackingSettings(kind="wandb", project="mine", url="https://wandb.example.org")


def test_nothing_is_sent_unless_a_profile_says_so(tmp_path):
    assert TrainingSettings().tracking == OFFLINE
    events = {str(tmp_path / "tensorboard")}
    assert {*OFFLINE.variables(tmp_path).values()} == events


def test_wrong_settings_are_one_line():
    for wrong, message in (
        ({"kind": "mlflow"}, "mlflow needs the url"),
        ({"kind": "tensorboard", "url": "http://a"}, "tensorboard has no server"),
        ({"kind": "wandb", "api_key": "secret"}, "api_key"),
    ):
        with pytest.raises(ValidationError, match=message):
            TrackingSettings(**wrong)


def test_a_resumed_training_goes_on_with_its_run(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "hush-hush")
    variables = WANDB.variables(tmp_path / "critic_rl_checkpoint" / "abc")
    assert variables["WANDB_RUN_ID"] == "critic_rl_checkpoint-abc"
    assert variables["WANDB_BASE_URL"] == WANDB.url and variables["WANDB_RESUME"] == "allow"
    assert os.environ["WANDB_API_KEY"] not in variables.values()


def test_a_tracker_must_be_in_the_trainers_environment():
    python = Path(sys.executable)
    require_tracker(OFFLINE, python)
    with pytest.raises(FoundryError, match="swanlab is not in the trainer's environment"):
        require_tracker(TrackingSettings(kind="swanlab"), python)


def test_the_link_is_where_the_curves_are(tmp_path):
    assert tracking_link(OFFLINE, tmp_path) is None
    (tmp_path / "tensorboard").mkdir()
    assert tracking_link(OFFLINE, tmp_path) == str(tmp_path / "tensorboard")
    assert tracking_link(WANDB, tmp_path) == WANDB.url
    (tmp_path / "verl.log").write_text(
        "wandb: View project at https://wandb.ai/me/p\nwandb: View run at https://wandb.ai/me/p/r\n"
    )
    assert tracking_link(WANDB, tmp_path) == "https://wandb.ai/me/p/r"
