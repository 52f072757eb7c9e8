"""Job and driver of supervised fine-tuning: LLaMA-Factory, its progress, and the final model.

`python -m training.sft.driver JOB.json`. Started again it resumes from the newest complete
checkpoint, and does nothing twice.
"""

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from schemas.yaml_config import ConfigModel
from warehouse.atomic import atomic_path, atomic_write

from ..environments import ensure_environment
from ..launch.driver import Driver, open_driver
from ..launch.failures import TrainingFailedError, exit_reason
from ..launch.jobs import TrainerJob
from ..trainer_output import attempt_file
from . import checkpoint_files
from .progress import LOG, SftLogFollower, truncate_log
from .recipe import CHECKPOINTS, CONFIG, environment, llamafactory_config, read_recipe
from .settings import SftSettings

_MERGE = "merge.yaml"
# What a process of torchrun raised; the processes around it only say that it ended.
_RANK_EXCEPTION = re.compile(r"^\[rank\d+\]: ((?:\w+\.)*\w+(?:Error|Exception)\b.*)$", re.M)
_MERGE_OPTIONS = ("template", "enable_thinking", "model_revision", "trust_remote_code")


class SftJob(ConfigModel):
    """Payload of the driver."""

    parent: str = Field(description="Folder of the model that is trained, or its id on the hub")
    data: Path = Field(description="Folder of the export for LLaMA-Factory")
    datasets: list[str] = Field(min_length=1, description="Data sets of the export, by name")
    settings: SftSettings = Field(description="How")


def sft_job(
    name: str,
    folder: Path,
    parent: Path | str,
    data: Path,
    datasets: Sequence[str],
    settings: SftSettings,
) -> TrainerJob:
    """Fine-tune `parent` on data sets of the export in `data`; `folder` is absolute.

    Raises:
        DocumentError: the recipe cannot be read.
    """
    model = str(parent.absolute()) if isinstance(parent, Path) else parent
    if isinstance(settings.recipe, Path):
        settings = settings.model_copy(update={"recipe": settings.recipe.absolute()})
    payload = SftJob(parent=model, data=data.absolute(), datasets=list(datasets), settings=settings)
    return TrainerJob(
        name=name,
        module=__name__,
        folder=folder,
        payload=payload.model_dump(mode="json"),
        gpus=read_recipe(settings).gpus,
    )


class SftRun:
    """One training, in its job's folder."""

    def __init__(self, driver: Driver, job: SftJob) -> None:
        self._driver, self._job = driver, job
        self._folder = driver.job.folder
        self._checkpoints = self._folder / CHECKPOINTS
        self._model = self._folder / "model"
        self._recipe = read_recipe(job.settings)
        # Of this attempt alone: the cause of a failure is read from its end.
        self._log = attempt_file(self._folder, "llamafactory", ".log")

    def run(self) -> None:
        """Train the remaining steps and publish the model.

        Raises:
            TrainingFailedError: LLaMA-Factory ended with an error, or too early.
        """
        newest = self._prepare_resume()
        done = checkpoint_files.step_of(newest) if newest else 0
        follower = self._follower(done)
        if newest is None or not checkpoint_files.is_final(newest):
            self._train(follower)
            newest = self._prepare_resume()
        if newest is None or not checkpoint_files.is_final(newest):
            reason = "LLaMA-Factory ended before its last checkpoint"
            raise TrainingFailedError(reason, self._log)
        self._report(follower)
        if not self._model.is_dir():
            self._publish(newest)
        steps = {"steps": checkpoint_files.step_of(newest)}
        self._driver.finish(self._model, follower.final_metrics() | steps)

    def _prepare_resume(self) -> Path | None:
        newest, broken = checkpoint_files.prepare_resume(self._checkpoints)
        for folder in broken:
            self._driver.log(f"a half-written checkpoint was moved to {folder}")
        return newest

    def _follower(self, done: int) -> SftLogFollower:
        """A follower of the log of all attempts, as far as their steps count."""
        if done:
            self._driver.log(f"{done} steps are done already")
        log = self._checkpoints / LOG
        truncate_log(log, done)
        return SftLogFollower(log, self._recipe.batch, done)

    def _report(self, follower: SftLogFollower) -> None:
        for point in follower.new_points():
            self._driver.progress(point)

    def _train(self, follower: SftLogFollower) -> None:
        job = self._job
        config = llamafactory_config(job.settings, job.parent, job.data, job.datasets, self._folder)
        self._run("train", CONFIG, config, follower)
        shutil.rmtree(self._folder / "cache", ignore_errors=True)

    def _publish(self, checkpoint: Path) -> None:
        """Write the last checkpoint as a model; adapters are merged into their parent."""
        with atomic_path(self._model, self._model.with_suffix(".partial")) as draft:
            if (checkpoint / "adapter_config.json").exists():
                self._driver.log("merging the adapters into the model")
                self._run("export", _MERGE, self._merge_config(checkpoint, draft), None)
            else:
                checkpoint_files.copy_model(checkpoint, draft)

    def _merge_config(self, checkpoint: Path, target: Path) -> dict[str, Any]:
        options = self._recipe.options
        return {name: options[name] for name in _MERGE_OPTIONS if name in options} | {
            "model_name_or_path": self._job.parent,
            "adapter_name_or_path": str(checkpoint),
            "finetuning_type": "lora",
            "export_dir": str(target),
        }

    def _run(
        self, command: str, name: str, config: dict[str, Any], follower: SftLogFollower | None
    ) -> None:
        """One command of `llamafactory-cli` on a YAML file in the job's folder, where it runs."""
        python = ensure_environment("sft", "gpu" if self._recipe.gpus else "cpu", self._driver.log)
        content = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        atomic_write(self._folder / name, content)
        code = self._driver.run_trainer(
            [str(python.parent / "llamafactory-cli"), command, name],
            environment(self._recipe, python, self._folder),
            self._log,
            lambda: self._report(follower) if follower else None,
        )
        if code:
            raise TrainingFailedError(_exit_reason(code, self._log), self._log)


def _exit_reason(code: int, log: Path) -> str:
    """One line about a failure; with several GPUs, the exception of one of their processes."""
    reason = exit_reason(code, log)
    exceptions = _RANK_EXCEPTION.findall(log.read_text("utf-8", "replace"))
    if exceptions and "CalledProcessError" in reason:
        return f"it ended with {' '.join(exceptions[-1].split())[:300]}"
    return reason


def main() -> None:
    with open_driver(sys.argv) as driver:
        SftRun(driver, SftJob.model_validate(driver.job.payload)).run()


if __name__ == "__main__":
    main()
