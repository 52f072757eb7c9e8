"""Job and driver of supervised fine-tuning: LLaMA-Factory, its progress, and the final model.

`python -m training.sft.driver JOB.json`. Started again it resumes from the newest complete
checkpoint, and does nothing twice.
"""

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from inference.environments import ensure_environment
from warehouse.atomic import atomic_write

from ..launch.driver import Driver, TrainingFailedError, attempt_file, open_driver
from ..launch.jobs import TrainerJob
from ..tracking import require_tracker
from . import llamafactory_files as files
from .nodes import rendezvous
from .recipe import CHECKPOINTS, CONFIG, SftJob, environment, llamafactory_config, read_recipe
from .rows import prepare_rows

# What a process of torchrun raised; the processes around it only say that it ended.
_RANK_EXCEPTION = re.compile(r"^\[rank\d+\]: ((?:\w+\.)*\w+(?:Error|Exception)\b.*)$", re.M)
_MERGE_OPTIONS = ("template", "enable_thinking", "model_revision", "trust_remote_code")


def sft_job(name: str, folder: Path, job: SftJob) -> TrainerJob:
    """A fine-tuning in `folder`, which is absolute."""
    payload, recipe = job.model_dump(mode="json"), job.settings.recipe
    if isinstance(recipe, Path):
        payload["settings"]["recipe"] = str(recipe.absolute())
    gpus = read_recipe(job.settings).gpus
    used = gpus * job.settings.nodes
    return TrainerJob(
        name=name, module=__name__, folder=folder, payload=payload, gpus=gpus, gpus_used=used
    )


class SftRun:
    """One training, in its job's folder."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._folder = driver, driver.job.folder
        self._job = SftJob.model_validate(driver.job.payload)
        self._recipe = read_recipe(self._job.settings)
        # Of this attempt alone: the cause of a failure is read from its end.
        self._log = attempt_file(self._folder, "llamafactory", ".log")

    def run(self) -> None:
        """Train the remaining steps and publish the model.

        Raises:
            TrainingFailedError: LLaMA-Factory ended with an error, or too early.
        """
        newest = self._newest_checkpoint()
        done = files.step_of(newest) if newest else 0
        if done:
            self._driver.log(f"{done} steps are done already")
        log = self._folder / CHECKPOINTS / files.LOG  # of all attempts, as far as their steps count
        files.truncate_log(log, done)
        follower = files.SftLogFollower(log, self._recipe.batch, done)

        def follow() -> None:
            for point in follower.new_points():
                self._driver.progress(point)

        if newest is None or not files.is_final(newest):
            self._train(follow)
            newest = self._newest_checkpoint()
        if newest is None or not files.is_final(newest):
            reason = "LLaMA-Factory ended before its last checkpoint"
            raise TrainingFailedError(reason, self._log)
        follow()
        model = self._driver.publish(partial(self._export, files.best_checkpoint(newest)))
        metrics = (
            follower.final_metrics() | {"steps": files.step_of(newest)} | files.dev_metrics(newest)
        )
        self._driver.finish(model, metrics)

    def _newest_checkpoint(self) -> Path | None:
        return files.newest_checkpoint(self._folder / CHECKPOINTS, self._driver.log)

    def _train(self, follow: Callable[[], object]) -> None:
        data = prepare_rows(self._job, self._recipe, self._folder, self._driver.log)
        tracking, nodes = self._driver.job.tracking, self._job.settings.nodes
        config = llamafactory_config(self._job, self._folder, data, tracking)
        require_tracker(tracking, self._python())
        variables = tracking.variables(self._folder)
        with rendezvous(self._folder) if nodes > 1 else nullcontext() as meeting:
            if meeting:
                variables |= meeting.variables(nodes, 0, self._recipe)
            self._run("train", CONFIG, config, variables, follow)
        shutil.rmtree(self._folder / "cache", ignore_errors=True)

    def _export(self, checkpoint: Path, draft: Path) -> None:
        """Write a checkpoint as a model; adapters are merged into their parent."""
        if (checkpoint / "adapter_config.json").exists():
            self._driver.log("merging the adapters into the model")
            self._run("export", "merge.yaml", self._merge_config(checkpoint, draft))
        else:
            files.copy_model(checkpoint, draft)

    def _merge_config(self, checkpoint: Path, target: Path) -> dict[str, Any]:
        options = self._recipe.options
        return {name: options[name] for name in _MERGE_OPTIONS if name in options} | {
            "model_name_or_path": str(self._job.parent),
            "adapter_name_or_path": str(checkpoint),
            "finetuning_type": "lora",
            "export_dir": str(target),
        }

    def _run(
        self,
        command: str,
        name: str,
        config: dict[str, Any],
        variables: Mapping[str, str] | None = None,
        follow: Callable[[], object] = lambda: None,
    ) -> None:
        """One command of `llamafactory-cli` on a YAML file in the job's folder, where it runs."""
        python = self._python()
        content = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        atomic_write(self._folder / name, content)
        try:
            self._driver.run_trainer(
                [str(python.parent / "llamafactory-cli"), command, name],
                environment(self._recipe, python, self._folder) | dict(variables or {}),
                self._log,
                follow,
            )
        except TrainingFailedError as error:
            exceptions = _RANK_EXCEPTION.findall(self._log.read_text("utf-8", "replace"))
            if not exceptions or "CalledProcessError" not in error.reason:
                raise
            reason = f"it ended with {' '.join(exceptions[-1].split())[:300]}"
            raise TrainingFailedError(reason, self._log) from error

    def _python(self) -> Path:
        return ensure_environment("sft", "gpu" if self._recipe.gpus else "cpu", self._driver.log)


def main() -> None:
    with open_driver(sys.argv) as driver:
        SftRun(driver).run()


if __name__ == "__main__":
    main()
