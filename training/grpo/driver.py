"""Driver of the critic's reinforcement: rewards, verl, its progress, and the model at the end.

`python -m training.grpo.driver JOB.json`. Started again it goes on from verl's
newest whole checkpoint; what is finished is not started again.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from statistics import fmean
from tempfile import gettempdir

from warehouse import Home, Journal

from ..environments import ensure_environment
from ..launch import Driver, TrainingFailed, TrainingProgress, open_driver, why_it_ended
from ..rewards import verl_client
from ..rewards.collapse import LAST_STEPS, collapsed, judged_prompts
from ..rewards.rollouts import failed_share
from ..rewards.server import rewards_served
from ..rewards.service import RewardService
from . import checkpoint_files, data
from .job import GrpoJob
from .progress import Curves, GrpoLogFollower
from .recipe import RunPaths, command, environment

ROLLOUTS = "rollouts.jsonl"  # the journal of the reward service, in the job's folder
_LAST = 10  # steps whose mean is a final figure


def main() -> None:
    with open_driver(sys.argv) as driver:
        GrpoRun(driver, GrpoJob.model_validate(driver.job.payload)).run()


class GrpoRun:
    """One run, in its job's folder."""

    def __init__(self, driver: Driver, job: GrpoJob) -> None:
        self._driver, self._job, self._settings = driver, job, job.settings
        self._folder = driver.job.folder
        self._model = self._folder / "model"
        self._curves = Curves(self._folder / "progress.jsonl")
        self._collapse: str | None = None
        self._python = ensure_environment("rl", "gpu" if job.settings.gpus else "cpu", driver.log)
        self._places = RunPaths(
            parent=job.parent,
            data=self._folder / data.EXPORT,
            checkpoints=self._folder / "checkpoints",
            hydra=self._folder / "hydra",
            reward_function=Path(verl_client.__file__),
        )

    def run(self) -> None:
        """Train what is left to train, and hand over the model."""
        total = data.length(self._job.data, self._settings)
        done = self._resume(total)
        if done < total:
            self._train(total)
            done, _ = checkpoint_files.prepare_resume(self._places.checkpoints)
        if done < total:
            self._driver.fail(f"verl ended at step {done} of {total}", self._log)
        if not self._model.is_dir():
            self._export(total)
        self._driver.finish(self._model, _final(self._curves.until(total)))

    @property
    def _log(self) -> Path:
        return self._folder / "verl.log"

    def _resume(self, total: int) -> int:
        """The step that training goes on from; its curves so far are reported once more."""
        done, aside = checkpoint_files.prepare_resume(self._places.checkpoints)
        for folder in aside:
            self._driver.log(f"a half-written checkpoint was set aside: {folder}")
        if done:
            self._driver.log(f"{done} of {total} steps are done already")
        for point in self._curves.until(done):
            self._driver.progress(point)
        return done

    def _train(self, total: int) -> None:
        """Run verl to its end.

        Raises:
            TrainingFailed: it ended with an error, or too many rollouts have no reward.
        """
        data.write_rows(self._job.data, self._places.data, self._settings)
        metrics = _unused(self._folder)
        service = self._rewards()
        follower = GrpoLogFollower(metrics, total, self._settings, service.step)

        def follow() -> None:
            for point in follower.new():
                self._report(point, service)

        with rewards_served(service) as address, _ray_folder(self._folder) as ray:
            variables = {
                **environment(self._settings),
                **address.environment(),
                "RAY_TMPDIR": str(ray),
                "RAY_ADDRESS": "local",  # its own, also where this driver runs on a cluster's Ray
                "VERL_FILE_LOGGER_PATH": str(metrics),
            }
            line = command(self._python, self._settings, self._places, total)
            code = self._driver.run_trainer(line, variables, self._log, follow)
        if code:
            self._driver.fail(why_it_ended(code, self._log), self._log)

    def _rewards(self) -> RewardService:
        home = Home(self._job.root)
        roles = self._job.players.rewarding(home)
        return RewardService(
            roles.generator,
            roles.scorer,
            home.images,
            self._settings.reward,
            self._job.version,
            Journal(self._folder / ROLLOUTS),
        )

    def _report(self, point: TrainingProgress, service: RewardService) -> None:
        self._curves.add(point)
        self._driver.progress(point)
        self._tell_of_collapse(point.step, service)
        self._stop_if_failing(point, service)

    def _tell_of_collapse(self, step: int, service: RewardService) -> None:
        """Name it in the log when it is first seen; the asset's check names what is left of it."""
        rows = [rollout.row for rollout in service.recent(LAST_STEPS)]
        found = collapsed(rows, self._judged_prompts)
        if found and found != self._collapse:
            self._driver.log(f"step {step}: the policy has collapsed, it {found}")
        self._collapse = found

    @cached_property
    def _judged_prompts(self) -> dict[str, str]:
        return judged_prompts(data.about(self._places.data))

    def _stop_if_failing(self, point: TrainingProgress, service: RewardService) -> None:
        limit = self._settings.reward.max_failed_share
        rows = [rollout.row for rollout in service.step(point.step)]
        lost = 1 - len(rows) / (self._settings.batch * self._settings.n)
        if lost > limit:
            reason = f"{lost:.0%} of the rollouts of step {point.step} failed in verl"
            raise TrainingFailed(f"{reason} (limit {limit:.0%})", self._log)
        undrawn = failed_share(rollout.row for rollout in service.recent(_LAST))
        if undrawn > limit:
            why = next(row.error for row in reversed(rows) if row.error)
            reason = f"{undrawn:.0%} of the drawings for rewards failed (limit {limit:.0%})"
            raise TrainingFailed(f"{reason}, the last with: {why}", self._folder / ROLLOUTS)

    def _export(self, step: int) -> None:
        """The last checkpoint in Hugging Face format, with tokenizer and processor.

        Raises:
            TrainingFailed: verl's merger ended with an error.
        """
        self._driver.log("merging the checkpoint into Hugging Face format")
        draft = self._folder / "model.partial"
        shutil.rmtree(draft, ignore_errors=True)
        source = checkpoint_files.actor(self._places.checkpoints, step)
        merge = [str(self._python), "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
        where = ["--local_dir", str(source), "--target_dir", str(draft)]
        variables = environment(self._settings)
        code = self._driver.run_trainer([*merge, *where], variables, self._log, _nothing)
        if code:
            self._driver.fail(why_it_ended(code, self._log), self._log)
        _add_missing(self._job.parent, draft)
        draft.rename(self._model)


def _nothing() -> None:
    """Nothing to follow."""


def _final(points: list[TrainingProgress]) -> dict[str, float]:
    """Mean of the last steps' figures."""
    last = points[-_LAST:]
    rewards = [point.reward for point in last if point.reward is not None]
    names = {name for point in last for name in point.extra}
    values = {name: [p.extra[name] for p in last if name in p.extra] for name in sorted(names)}
    metrics = {name: fmean(known) for name, known in values.items()}
    if rewards:
        metrics["reward"] = fmean(rewards)
    return metrics | {"steps": float(points[-1].step if points else 0)}


def _unused(folder: Path) -> Path:
    """A metrics file for this attempt: verl empties the one it is given."""
    attempt = len(list(folder.glob("metrics-*.jsonl"))) + 1
    return folder / f"metrics-{attempt}.jsonl"


def _add_missing(parent: Path, model: Path) -> None:
    """Small files of the parent (processor, templates) that verl does not carry over."""
    for path in parent.glob("*.json*"):
        if not (model / path.name).exists() and "safetensors" not in path.name:
            shutil.copy2(path, model / path.name)


@contextmanager
def _ray_folder(folder: Path) -> Iterator[Path]:
    """Ray's own folder for this job: short, since the paths of its sockets have 107 bytes."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    base = "/tmp" if os.access("/tmp", os.W_OK) else gettempdir()
    path = Path(base) / f"il-ray-{name}"
    shutil.rmtree(path, ignore_errors=True)  # of a run that was killed
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
