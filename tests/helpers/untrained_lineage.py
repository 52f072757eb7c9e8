"""The code location of a daemon whose trainings take no time, and failed ones start again soon."""

from assets.checkpoints import training
from dagster_project import retraining
from dagster_project.definitions import defs
from tests.helpers.fake_launcher import FakeLauncher

training.run_job = FakeLauncher().run_job
retraining._PAUSE_SECONDS = 5

__all__ = ["defs"]
