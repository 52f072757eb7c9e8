"""Driver of supervised fine-tuning: LLaMA-Factory, its progress, and the model at the end.

`python -m training.sft.driver JOB.json`. Started again it goes on from the
newest whole checkpoint; what is finished is not started again.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from ..environments import ensure_environment
from ..launch import Driver, open_driver, why_it_ended
from . import checkpoint_files
from .job import SftJob
from .progress import LOG, SftLogFollower, forget_after
from .recipe import CHECKPOINTS, CONFIG, environment, read_recipe, rendered

_MERGE = "merge.yaml"
# What a process of torchrun raised; the processes around it only say that it ended.
_RAISED_BY_RANK = re.compile(r"^\[rank\d+\]: ((?:\w+\.)*\w+(?:Error|Exception)\b.*)$", re.M)


def main() -> None:
    with open_driver(sys.argv) as driver:
        FineTuning(driver, SftJob.model_validate(driver.job.payload)).run()


class FineTuning:
    """One training, in its job's folder."""

    def __init__(self, driver: Driver, job: SftJob) -> None:
        self._driver, self._job = driver, job
        self._folder = driver.job.folder
        self._checkpoints = self._folder / CHECKPOINTS
        self._model = self._folder / "model"
        self._recipe = read_recipe(job.settings)
        self._log = _unused_log(self._folder)

    def run(self) -> None:
        """Train what is left to train, and hand over the model."""
        newest = self._take_up()
        done = checkpoint_files.step_of(newest) if newest else 0
        follower = self._follower(done)
        if newest is None or not checkpoint_files.is_final(newest):
            self._train(follower)
            newest = self._take_up()
        if newest is None or not checkpoint_files.is_final(newest):
            self._driver.fail("LLaMA-Factory ended before its last checkpoint", self._log)
        self._tell(follower)
        if not self._model.is_dir():
            self._publish(newest)
        self._driver.finish(
            self._model, follower.final() | {"steps": checkpoint_files.step_of(newest)}
        )

    def _take_up(self) -> Path | None:
        newest, aside = checkpoint_files.prepare_resume(self._checkpoints)
        for folder in aside:
            self._driver.log(f"a half-written checkpoint was set aside: {folder}")
        return newest

    def _follower(self, done: int) -> SftLogFollower:
        """Of the log of all attempts, as far as their steps count."""
        if done:
            self._driver.log(f"{done} steps are done already")
        log = self._checkpoints / LOG
        forget_after(log, done)
        return SftLogFollower(log, self._recipe.batch, done)

    def _tell(self, follower: SftLogFollower) -> None:
        for point in follower.new():
            self._driver.progress(point)

    def _train(self, follower: SftLogFollower) -> None:
        """Run LLaMA-Factory to its end.

        Raises:
            TrainingFailed: it ended with an error.
        """
        job = self._job
        config = rendered(job.settings, job.parent, job.data, job.datasets, self._folder)
        self._run("train", CONFIG, config, follower)
        shutil.rmtree(self._folder / "cache", ignore_errors=True)

    def _publish(self, checkpoint: Path) -> None:
        """The last checkpoint as a model of its own; adapters are merged into their parent."""
        draft = self._model.with_suffix(".partial")
        shutil.rmtree(draft, ignore_errors=True)
        if (checkpoint / "adapter_config.json").exists():
            self._driver.log("merging the adapters into the model")
            self._run("export", _MERGE, self._merging(checkpoint, draft), None)
        else:
            checkpoint_files.copy_model(checkpoint, draft)
        draft.rename(self._model)

    def _merging(self, checkpoint: Path, target: Path) -> dict[str, Any]:
        options = self._recipe.options
        kept = ("template", "enable_thinking", "model_revision", "trust_remote_code")
        return {name: options[name] for name in kept if name in options} | {
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
        _write_yaml(self._folder / name, config)
        code = self._driver.run_trainer(
            [str(python.parent / "llamafactory-cli"), command, name],
            environment(self._recipe, python, self._folder),
            self._log,
            lambda: self._tell(follower) if follower else None,
        )
        if code:
            self._driver.fail(_why(code, self._log), self._log)


def _why(code: int, log: Path) -> str:
    """One line about a failure; with several GPUs, what their processes said."""
    reason = why_it_ended(code, log)
    raised = _RAISED_BY_RANK.findall(log.read_text("utf-8", "replace"))
    if raised and "CalledProcessError" in reason:
        return f"it ended with {' '.join(raised[-1].split())[:300]}"
    return reason


def _unused_log(folder: Path) -> Path:
    """A log for this attempt: the cause of a failure is read from its end."""
    return folder / f"llamafactory-{len(list(folder.glob('llamafactory-*.log'))) + 1}.log"


def _write_yaml(path: Path, content: dict[str, Any]) -> None:
    draft = path.with_suffix(".partial")
    draft.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), "utf-8")
    draft.replace(path)


if __name__ == "__main__":
    main()
