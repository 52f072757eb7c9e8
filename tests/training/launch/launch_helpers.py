"""Run a toy training from a real asset, in this process."""

import asyncio
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg

from training.launch.jobs import LauncherSettings, TrainerJob, TrainingOutcome
from training.launch.launcher import run_job

HERE = Path(__file__).parent
THREE_STEPS = """
import json, time
with open("steps.jsonl", "w") as steps:
    for step in (1, 2, 3):
        print(json.dumps({"step": step, "total": 3, "loss": 1 / step}), file=steps, flush=True)
        time.sleep(0.1)
"""
# The first step at once, two more when the file `go` is there; a line in `starts` for each start.
THREE_STEPS_ON_GO = """
import json, pathlib, time
with open("starts", "a") as starts:
    print("start", file=starts)
with open("steps.jsonl", "w") as steps:
    for step in (1, 2, 3):
        print(json.dumps({"step": step, "total": 3, "loss": 1 / step}), file=steps, flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.05)
"""
ONE_RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from tests.training.launch.launch_helpers import launch, toy_job
from training.launch.jobs import LauncherSettings
settings = LauncherSettings.model_validate_json({settings!r})
launch(toy_job(Path({folder!r}), {code!r}), settings)
"""


def run_in_process(
    folder: Path, code: str, settings: LauncherSettings | None = None
) -> subprocess.Popen[bytes]:
    """A run in a process of its own, as Dagster's launcher starts one."""
    chosen = (settings or LauncherSettings(grace_seconds=1)).model_dump_json()
    program = ONE_RUN.format(here=str(HERE), folder=str(folder), code=code, settings=chosen)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-c", program], **quiet)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.1)


class RecordedProgress:
    """Records progress updates."""

    def __init__(self) -> None:
        self.updates: list[tuple[int, int, str]] = []

    def update(self, done: int, total: int, note: str = "") -> None:
        self.updates.append((done, total, note))


def toy_job(folder: Path, code: str, **payload: Any) -> TrainerJob:
    return TrainerJob(
        name="toy",
        module="toy_trainer",
        folder=folder,
        payload={"code": code, **payload},
        environment={"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
    )


def launch(
    job: TrainerJob,
    settings: LauncherSettings | None = None,
    instance: dg.DagsterInstance | None = None,
) -> tuple[TrainingOutcome, list[tuple[int, int, str]]]:
    """Outcome and progress of a job that an asset runs; raises what the asset raises."""
    progress = RecordedProgress()
    (outcome,) = launch_all([job], progress, settings, instance)
    return outcome, progress.updates


def follow(
    folder: Path, settings: LauncherSettings
) -> tuple[TrainingOutcome, list[tuple[int, int, str]]]:
    """The same of a run that follows a training of `THREE_STEPS_ON_GO`, which goes on only then."""
    job = toy_job(folder, THREE_STEPS_ON_GO)
    with dg.DagsterInstance.ephemeral() as instance, ThreadPoolExecutor(1) as threads:
        following = threads.submit(launch, job, settings, instance)
        deadline = time.monotonic() + 120
        try:
            while not logged(instance, "is being trained already: following it"):
                assert time.monotonic() < deadline, "it is not followed"
                time.sleep(0.1)
        finally:
            (folder / "go").touch()
        return following.result(60)


def logged(instance: dg.DagsterInstance, text: str) -> bool:
    """Whether a run of an instance has logged it."""
    runs = instance.get_runs()
    return any(
        text in entry.user_message for run in runs for entry in instance.all_logs(run.run_id)
    )


def launch_all(
    jobs: list[TrainerJob],
    progress: RecordedProgress,
    settings: LauncherSettings | None = None,
    instance: dg.DagsterInstance | None = None,
) -> list[TrainingOutcome]:
    """The same for jobs that run at the same time."""
    outcomes: list[TrainingOutcome] = []

    @dg.asset
    def trained(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        launcher = settings or LauncherSettings()

        async def run() -> None:
            runs = [run_job(context, job, launcher, progress) for job in jobs]
            outcomes.extend(await asyncio.gather(*runs))

        asyncio.run(run())
        return dg.MaterializeResult()

    dg.materialize([trained], instance=instance)
    return outcomes
