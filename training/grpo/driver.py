"""Job and driver of the critic's reinforcement: rewards, verl, its progress, the final model.

`python -m training.grpo.driver JOB.json`. Started again it resumes from verl's newest complete
checkpoint, and does nothing twice.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from statistics import fmean
from tempfile import gettempdir

import pyarrow.parquet as pq
from pydantic import Field

from inference.backends.factory import Backends
from inference.roles import Roles
from schemas.yaml_config import ConfigModel
from warehouse import Home, Journal
from warehouse.atomic import atomic_path

from ..environments import ensure_environment
from ..launch.driver import Driver, open_driver
from ..launch.failures import TrainingFailedError, exit_reason
from ..launch.jobs import TrainerJob, TrainingProgress
from ..rewards import verl_client
from ..rewards.collapse import LAST_STEPS, find_collapse, judged_prompts
from ..rewards.rollouts import failed_share
from ..rewards.server import serve_rewards_in_thread
from ..rewards.service import RewardService
from ..trainer_output import attempt_file
from . import checkpoint_files, data
from .progress import Curves, GrpoLogFollower
from .recipe import RunPaths, environment, training_command
from .settings import GrpoSettings

ROLLOUTS = "rollouts.jsonl"  # the journal of the reward service, in the job's folder
_FINAL_STEPS = 10  # last steps whose mean is a final figure


class RewardRoles(Backends):
    """The backends of a profile, of which rewards need the generator and the scorer."""

    def build_for_rewards(self, home: Home) -> Roles:
        """Generator and scorer of the profile; no trained agent is loaded for a reward."""
        agents = {"planner": "sketch", "critic": "sketch"}
        roles = self.roles.model_copy(update=agents)
        return self.model_copy(update={"roles": roles}).build(home)


class GrpoJob(ConfigModel):
    """Payload of the driver."""

    parent: Path = Field(description="Checkpoint that is reinforced, in Hugging Face format")
    data: Path = Field(description="Folder of the export for verl")
    settings: GrpoSettings = Field(description="How")
    root: str = Field(description="Folder or URL of the lake, where the images are")
    # The alias is in the job files and configuration hashes of earlier versions.
    roles: RewardRoles = Field(alias="players", description="Generator and scorer of the rewards")
    version: str = Field(description="Version of the checkpoint that is made; names its rollouts")


def grpo_job(
    name: str,
    folder: Path,
    parent: Path,
    data: Path,
    settings: GrpoSettings,
    root: str,
    roles: RewardRoles,
    version: str,
) -> TrainerJob:
    """Reinforce the critic `parent` on the export for verl in `data`; `folder` is absolute."""
    payload = GrpoJob(
        parent=parent.absolute(),
        data=data.absolute(),
        settings=settings,
        root=root,
        players=roles,
        version=version,
    )
    return TrainerJob(
        name=name,
        module=__name__,
        folder=folder,
        payload=payload.model_dump(mode="json", by_alias=True),
        gpus=settings.gpus,
    )


class GrpoRun:
    """One run, in its job's folder."""

    def __init__(self, driver: Driver, job: GrpoJob) -> None:
        self._driver, self._job, self._settings = driver, job, job.settings
        self._folder = driver.job.folder
        self._model = self._folder / "model"
        self._log = self._folder / "verl.log"
        self._curves = Curves(self._folder / "progress.jsonl")
        self._collapse: str | None = None
        self._python = ensure_environment("rl", "gpu" if job.settings.gpus else "cpu", driver.log)
        self._paths = RunPaths(
            parent=job.parent,
            data=self._folder / data.EXPORT,
            checkpoints=self._folder / "checkpoints",
            hydra=self._folder / "hydra",
            reward_function=Path(verl_client.__file__),
        )

    def run(self) -> None:
        """Train the remaining steps and publish the model.

        Raises:
            TrainingFailedError: verl ended with an error or too early, or too many rollouts have
                no reward.
        """
        total = data.total_steps(self._job.data, self._settings)
        done = self._resume(total)
        if done < total:
            self._train(total)
            done, _ = checkpoint_files.prepare_resume(self._paths.checkpoints)
        if done < total:
            raise TrainingFailedError(f"verl ended at step {done} of {total}", self._log)
        if not self._model.is_dir():
            self._export(total)
        self._driver.finish(self._model, _final_metrics(self._curves.up_to(total)))

    def _resume(self, total: int) -> int:
        """The step that training resumes from; the curves up to it are reported again."""
        done, broken = checkpoint_files.prepare_resume(self._paths.checkpoints)
        for folder in broken:
            self._driver.log(f"a half-written checkpoint was moved to {folder}")
        if done:
            self._driver.log(f"{done} of {total} steps are done already")
        for point in self._curves.up_to(done):
            self._driver.progress(point)
        return done

    def _train(self, total: int) -> None:
        data.write_rows(self._job.data, self._paths.data, self._settings)
        metrics = attempt_file(self._folder, "metrics", ".jsonl")  # verl empties an existing one
        service = self._reward_service()
        follower = GrpoLogFollower(metrics, total, self._settings, service.step)

        def follow() -> None:
            for point in follower.new_points():
                self._report(point, service)

        with serve_rewards_in_thread(service) as address, _ray_folder(self._folder) as ray:
            variables = {
                **address.environment(),
                "RAY_TMPDIR": str(ray),
                "RAY_ADDRESS": "local",  # its own, also where this driver runs on a cluster's Ray
                "VERL_FILE_LOGGER_PATH": str(metrics),
            }
            command = training_command(self._python, self._settings, self._paths, total)
            self._run(command, variables, follow)

    def _reward_service(self) -> RewardService:
        home = Home(self._job.root)
        roles = self._job.roles.build_for_rewards(home)
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
        self._log_collapse(point.step, service)
        self._stop_if_failing(point, service)

    def _log_collapse(self, step: int, service: RewardService) -> None:
        """Log a collapse when it is first detected; the asset's check reports the final state."""
        rows = [rollout.row for rollout in service.recent(LAST_STEPS)]
        collapse = find_collapse(rows, self._judged_prompts)
        if collapse and collapse != self._collapse:
            self._driver.log(f"step {step}: the policy has collapsed, it {collapse}")
        self._collapse = collapse

    @cached_property
    def _judged_prompts(self) -> dict[str, str]:
        rows = pq.read_table(self._paths.data, columns=["extra_info"])
        return judged_prompts(rows.column(0).to_pylist())

    def _stop_if_failing(self, point: TrainingProgress, service: RewardService) -> None:
        limit = self._settings.reward.max_failed_share
        rows = [rollout.row for rollout in service.step(point.step)]
        lost = 1 - len(rows) / (self._settings.batch * self._settings.n)
        if lost > limit:
            reason = f"{lost:.0%} of the rollouts of step {point.step} failed in verl"
            raise TrainingFailedError(f"{reason} (limit {limit:.0%})", self._log)
        failed = failed_share(rollout.row for rollout in service.recent(_FINAL_STEPS))
        if failed > limit:
            error = next(row.error for row in reversed(rows) if row.error)
            reason = f"{failed:.0%} of the drawings for rewards failed (limit {limit:.0%})"
            message = f"{reason}, the last with: {error}"
            raise TrainingFailedError(message, self._folder / ROLLOUTS)

    def _export(self, step: int) -> None:
        """Write the last checkpoint in Hugging Face format, with tokenizer and processor."""
        self._driver.log("merging the checkpoint into Hugging Face format")
        source = checkpoint_files.actor_folder(self._paths.checkpoints, step)
        with atomic_path(self._model, self._folder / "model.partial") as draft:
            merge = [str(self._python), "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
            folders = ["--local_dir", str(source), "--target_dir", str(draft)]
            self._run([*merge, *folders], {}, lambda: None)
            _copy_missing_files(self._job.parent, draft)

    def _run(
        self, command: list[str], variables: Mapping[str, str], follow: Callable[[], object]
    ) -> None:
        """One command of verl's environment, to its end."""
        variables = {**environment(self._settings), **variables}
        code = self._driver.run_trainer(command, variables, self._log, follow)
        if code:
            raise TrainingFailedError(exit_reason(code, self._log), self._log)


def _final_metrics(points: Sequence[TrainingProgress]) -> dict[str, float]:
    """Mean figures of the last steps."""
    last = points[-_FINAL_STEPS:]
    names = sorted({name for point in last for name in point.extra})
    metrics = {name: fmean(p.extra[name] for p in last if name in p.extra) for name in names}
    rewards = [point.reward for point in last if point.reward is not None]
    if rewards:
        metrics["reward"] = fmean(rewards)
    return metrics | {"steps": float(points[-1].step if points else 0)}


def _copy_missing_files(parent: Path, model: Path) -> None:
    """Small files of the parent (processor, templates) that verl does not write."""
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


def main() -> None:
    with open_driver(sys.argv) as driver:
        GrpoRun(driver, GrpoJob.model_validate(driver.job.payload)).run()


if __name__ == "__main__":
    main()
