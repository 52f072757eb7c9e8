"""Job and driver of a reinforcement: rewards, verl, its progress, the final model.

`python -m training.grpo.driver JOB.json`. Started again it resumes from verl's newest complete
checkpoint, and does nothing twice.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from tempfile import gettempdir

import pyarrow.parquet as pq
from pydantic import Field

from inference.backends.factory import Backends, Judge
from inference.calls.ask import ModelCalls
from inference.environments import Hardware, ensure_environment
from inference.generators import generator_shares
from inference.judge_grader import open_judge
from inference.roles import Grader
from inference.servers.ray_jobs import reachable_host, starting_ray
from inference.servers.vllm import compiler_variables
from inference.settings import LoopSettings
from inference.sketch_world.grader import SketchGrader
from schemas.yaml_config import ConfigModel
from warehouse import Home, Journal

from ..launch.driver import Driver, TrainingFailedError, attempt_file, open_driver
from ..launch.jobs import AbsolutePath, TrainerJob, TrainingProgress
from ..rewards.critic import CriticReward, attempt_of, generators_of_rows, images_so_far
from ..rewards.planner import PlannerEpisodeReward, PlannerReward
from ..rewards.policy_critic import CriticQuestion
from ..rewards.rollouts import (
    DEV_REWARD,
    LAST_STEPS,
    failed_share,
    find_collapse,
    judged_prompts,
    right_shares,
)
from ..rewards.service import LOOPBACK, Reward, RewardService, serve_rewards_in_thread
from ..rewards.trajectory import (
    CriticEpisodeReward,
    TrajectoryReward,
    judged_attempts,
    reuse_recorded_calls,
)
from ..tracking import has_package, require_tracker
from . import recipe
from .rows import choice_figures, prepare_rows
from .verl_files import (
    DevEvaluations,
    GrpoLogFollower,
    average_with_parent,
    final_metrics,
    points_up_to,
    resume_step,
)

ROLLOUTS = "rollouts.jsonl"  # the journal of the reward service, in the job's folder
_CANDIDATES = "candidates.jsonl"  # there: the parent's answers to rows that are chosen from
_LAST_STEPS = 10  # steps whose drawings must not fail
RewardOpener = Callable[[ModelCalls, Home], AbstractContextManager[Reward]]


class GrpoJob(ConfigModel):
    """Payload of the driver."""

    parent: AbsolutePath = Field(description="Agent that is reinforced, in Hugging Face format")
    data: AbsolutePath = Field(description="File of the export for verl")
    # A critic's reward has keys that a planner's has not, and not the other way round.
    settings: recipe.PlannerGrpoSettings | recipe.CriticGrpoSettings = Field(
        union_mode="left_to_right", description="How; says which role"
    )
    root: str = Field(description="Folder or URL of the lake, where the images are")
    roles: Backends = Field(description="Generator, scorer and critic of the rewards")
    version: str = Field(description="Version of the checkpoint that is made; names its rollouts")
    loop: LoopSettings = Field(
        LoopSettings(),
        description="How rewards are drawn: from which images, and a planner's outcomes",
    )
    question: CriticQuestion | None = Field(
        None, description="To the critic, about later images; null: no episodes are played"
    )
    judge: Judge | None = Field(
        None, description="Grades plans and outcomes; null: the exact grader of the sketch world"
    )


def judge_partition(version: str) -> str:
    """Partition of the journal with the judgements of a version's rewards."""
    return f"{version}-judge"


def grpo_job(name: str, folder: Path, job: GrpoJob) -> TrainerJob:
    """A reinforcement in `folder`, which is absolute."""
    payload = job.model_dump(mode="json")
    gpus = 0 if job.settings.on_cluster else job.settings.gpus  # verl reserves a cluster's itself
    used = job.settings.gpus * job.settings.nodes
    return TrainerJob(
        name=name, module=__name__, folder=folder, payload=payload, gpus=gpus, gpus_used=used
    )


class GrpoRun:
    """One run, in its job's folder."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._folder = driver, driver.job.folder
        self._job = GrpoJob.model_validate(driver.job.payload)
        self._settings = self._job.settings
        self._log = self._folder / "verl.log"
        self._checkpoints = self._folder / recipe.CHECKPOINTS
        # The points of all attempts, from which a resumed run goes on.
        self._curves = Journal(self._folder / "progress.jsonl")
        self._evaluations = DevEvaluations(self._curves, self._checkpoints, self._settings.patience)
        self._collapse: str | None = None
        hardware: Hardware = "gpu" if (run := self._settings).gpus else "cpu"
        self._python = ensure_environment("rl", hardware, driver.log, run.environment_extra)

    def run(self) -> None:
        """Train the remaining steps and publish the model.

        Raises:
            TrainingFailedError: verl ended with an error or too early, or too many rollouts have
                no reward.
        """
        total = prepare_rows(
            self._job.data,
            self._folder,
            self._settings,
            self._job.parent,
            Home(self._job.root).images,
            self._driver.log,
            self._answer_candidates,
        )
        done = self._resume_step()
        if done:
            self._driver.log(f"{done} of {total} steps are done already")
        for point in points_up_to(done, self._curves):
            self._driver.progress(point)
        if not self._is_over(done, total):
            self._train(total)
            done = self._resume_step()
        if not self._is_over(done, total):
            raise TrainingFailedError(f"verl ended at step {done} of {total}", self._log)
        best = self._evaluations.best(done)
        model = self._driver.publish(partial(self._export, best or done))
        metrics = final_metrics(points_up_to(done, self._curves), best)
        chosen = choice_figures(self._folder, right_shares(self._folder / _CANDIDATES))
        self._driver.finish(model, metrics | chosen)

    def _resume_step(self) -> int:
        return resume_step(self._checkpoints, self._driver.log)

    def _is_over(self, done: int, total: int) -> bool:
        return done >= total or self._evaluations.stop_training(done)

    def _answer_candidates(self) -> dict[str, float]:
        """How often the parent is right about each candidate: verl samples its answers."""
        self._driver.log("the parent answers the candidates for the rows that are trained on")
        with self._serving(_CANDIDATES, self._verdict_rewards):
            self._run_main(1, recipe.candidate_overrides(self._settings, self._folder), {})
        shares = right_shares(self._folder / _CANDIDATES)
        if not shares:
            raise TrainingFailedError("no answer to a candidate could be graded", self._log)
        return shares

    def _train(self, total: int) -> None:
        metrics = attempt_file(self._folder, "metrics", ".jsonl")  # verl empties an existing one
        (self._checkpoints / recipe.STOP).unlink(missing_ok=True)
        with self._serving(ROLLOUTS, self._rewards) as service:
            follower = GrpoLogFollower(
                metrics, total, self._settings, service.step, service.evaluation
            )

            def follow() -> None:
                for point in follower.new_points():
                    self._report(point, service)

            tracking = self._driver.job.tracking.variables(self._folder)
            try:
                self._run_main(
                    total, [], {"VERL_FILE_LOGGER_PATH": str(metrics), **tracking}, follow
                )
            except TrainingFailedError:
                self._stop_if_drawings_fail(service)  # the cause
                raise

    def _run_main(
        self,
        total: int,
        further: Sequence[str],
        variables: Mapping[str, str],
        follow: Callable[[], object] = lambda: None,
    ) -> None:
        """verl's main program for so many steps; `further` overrides come after the settings'."""
        tracking, settings = self._driver.job.tracking, self._settings
        require_tracker(tracking, self._python)
        has_flash = has_package(self._python, "flash_attn")
        attention: recipe.Attention = "flash_attention_2" if has_flash else "sdpa"
        changes = recipe.overrides(
            settings, self._job.parent, self._folder, total, attention, tracking
        )
        if settings.on_cluster:
            shared = {**self._environment(), **variables}
            changes += recipe.cluster_overrides(self._python, shared)
        self._run_verl([recipe.program(settings), *changes, *further], variables, follow)

    def _run_verl(
        self, arguments: list[str], variables: Mapping[str, str], follow: Callable[[], object]
    ) -> None:
        """verl's main program."""

        def run() -> None:
            with self._own_ray() as ray:
                self._run(arguments, {**variables, **ray}, follow)

        note = "Ray is started again: it took longer than it waits for itself"
        starting_ray(before_sleep=lambda _: self._driver.log(note))(run)

    @contextmanager
    def _own_ray(self) -> Iterator[Mapping[str, str]]:
        """Variables of a Ray of this run's own, also where this driver runs on a cluster's Ray."""
        if self._settings.on_cluster:
            yield {}
            return
        with _ray_folder(self._folder) as temporary:
            yield {"RAY_TMPDIR": str(temporary), "RAY_ADDRESS": "local"}

    def _environment(self) -> dict[str, str]:
        compilers = compiler_variables(self._python) if self._settings.gpus else {}
        return recipe.environment(self._settings) | compilers

    def _reward_host(self) -> str:
        """Where the reward server listens: on loopback, unless other nodes ask it."""
        if not self._settings.on_cluster:
            return LOOPBACK
        address = os.environ.get("RAY_ADDRESS", "")
        if not address or address == "local" or "://" in address:
            raise TrainingFailedError(
                "several nodes, or `cluster: true`, need a Ray cluster: set RAY_ADDRESS to its "
                f"head, such as 10.0.0.1:6379 (now: {address or 'not set'})"
            )
        host = address.partition(":")[0]
        return reachable_host() if host == "auto" else reachable_host(host)

    @contextmanager
    def _serving(self, journal: str, open_rewards: RewardOpener) -> Iterator[RewardService]:
        """The service that verl asks, the only writer of the journal of this run's calls."""
        home, name, version = Home(self._job.root), self._driver.job.name, self._job.version
        limits, rollouts = self._settings.reward.limits, Journal(self._folder / journal)
        with (
            ModelCalls(home, name, version, self._backends().build(home), limits) as calls,
            open_rewards(calls, home) as rewards,
        ):
            service = RewardService(rewards, version, rollouts)
            with (
                serve_rewards_in_thread(service, self._reward_host()) as address,
                address.written_to(self._folder / recipe.REWARD_ADDRESS),
            ):
                yield service
        rollouts.close()

    def _backends(self) -> Backends:
        """Those of the profile; a trained agent is loaded only where its answers count."""
        untrained = {"planner": "sketch"}
        if not self._settings.reward.asks_critic:
            untrained["critic"] = "sketch"
        bindings = self._job.roles.roles.model_copy(update=untrained)
        return self._job.roles.model_copy(update={"roles": bindings})

    @contextmanager
    def _rewards(self, calls: ModelCalls, home: Home) -> Iterator[Reward]:
        """Rewards of the role that is trained."""
        if isinstance(self._settings, recipe.PlannerGrpoSettings):
            with self._grader(home) as grader:
                of_plan = calls, grader, self._settings.reward, self._job.loop
                if self._settings.plays_episodes:
                    yield PlannerEpisodeReward(*of_plan, self._question)
                else:
                    yield PlannerReward(*of_plan)
            return
        settings = self._settings.reward
        named = [self._backends().of_backend("generator", n, home) for n in settings.generators]
        drawing = named or [generator for generator, _ in generator_shares(calls.roles)]
        rows, loop = self._judged_prompts, self._job.loop
        generator_of = generators_of_rows(drawing, rows, settings.seed, home, self._folder)
        if settings.of == "step":
            images_of = self._images_of_rows(home)
            yield CriticReward(calls, generator_of, settings, loop.conditioning, images_of)
            return
        attempts = judged_attempts(home, self._attempts_of_rows)
        reuse_recorded_calls(calls, attempts.values())
        with self._grader(home) as grader:
            shared = calls, generator_of, settings, loop, grader, attempts
            if settings.of == "trajectory":
                yield TrajectoryReward(*shared)
            else:
                yield CriticEpisodeReward(self._question, *shared)

    @property
    def _question(self) -> CriticQuestion:
        assert self._job.question, "a job that plays episodes says how the critic is asked"
        return self._job.question

    @contextmanager
    def _verdict_rewards(self, calls: ModelCalls, home: Home) -> Iterator[Reward]:
        """Rewards for the role's own answers, without what is drawn for them."""
        if isinstance(self._settings, recipe.PlannerGrpoSettings):
            plan = self._settings.reward.model_copy(update={"of": "plan"})
            with self._grader(home) as grader:
                yield PlannerReward(calls, grader, plan, self._job.loop)
            return
        verdict = self._settings.reward.model_copy(update={"without": ("step",)})
        yield CriticReward(calls, lambda _row: calls.roles.generator, verdict)

    @contextmanager
    def _grader(self, home: Home) -> Iterator[Grader]:
        job, limits = self._job, self._settings.reward.limits
        if job.judge is None:
            yield SketchGrader()
            return
        journal = self._driver.job.name, judge_partition(job.version)
        with open_judge(home, job.roles, job.judge, journal, limits) as grader:
            yield grader

    def _images_of_rows(self, home: Home) -> Callable[[str], tuple[str, ...]]:
        """The images so far by the id of a row, where rewards are drawn from all of them."""
        if self._job.loop.conditioning == "last":
            return lambda _row: ()
        images = images_so_far(home, self._attempts_of_rows)
        return lambda row: images.get(attempt_of(row), ())

    @property
    def _attempts_of_rows(self) -> set[str]:
        return set(map(attempt_of, self._judged_prompts))

    def _report(self, point: TrainingProgress, service: RewardService) -> None:
        self._curves.append(point.model_dump(mode="json", exclude_none=True))
        self._driver.progress(point)
        if DEV_REWARD in point.extra:
            self._evaluations.conclude(point.step, self._driver.log)
        self._log_collapse(point.step, service)
        self._stop_if_failing(point.step, service)

    def _log_collapse(self, step: int, service: RewardService) -> None:
        """Log a collapse when it is first detected; the asset's check reports the final state."""
        collapse = find_collapse(service.recent_rows(LAST_STEPS), self._judged_prompts)
        if collapse and collapse != self._collapse:
            self._driver.log(f"step {step}: the policy has collapsed, it {collapse}")
        self._collapse = collapse

    @cached_property
    def _judged_prompts(self) -> dict[str, str]:
        """By the id of a critic's row, also of those that are not trained on."""
        if isinstance(self._settings, recipe.PlannerGrpoSettings):
            return {}
        paths = [self._folder / name for name in (recipe.ROWS, recipe.DEV_ROWS)]
        files = [pq.ParquetFile(path) for path in paths if path.exists()]
        batches = (batch for file in files for batch in file.iter_batches(columns=["extra_info"]))
        return judged_prompts(row for batch in batches for row in batch.column(0).to_pylist())

    def _stop_if_failing(self, step: int, service: RewardService) -> None:
        limit = self._settings.reward.max_failed_share
        lost = 1 - len(service.step(step)) / (self._settings.batch * self._settings.n)
        if lost > limit:
            reason = f"{lost:.0%} of the rollouts of step {step} failed in verl"
            raise TrainingFailedError(f"{reason} (limit {limit:.0%})", self._log)
        self._stop_if_drawings_fail(service)

    def _stop_if_drawings_fail(self, service: RewardService) -> None:
        limit, rows = self._settings.reward.max_failed_share, service.recent_rows(_LAST_STEPS)
        failed = failed_share(rows)
        if failed > limit:
            error = next(row.error for row in reversed(rows) if row.error)
            reason = f"{failed:.0%} of the drawings for rewards failed (limit {limit:.0%})"
            message = f"{reason}, the last with: {error}"
            raise TrainingFailedError(message, self._folder / ROLLOUTS)

    def _export(self, step: int, draft: Path) -> None:
        """Write a step's checkpoint in Hugging Face format, with tokenizer and processor."""
        self._driver.log("merging the checkpoint into Hugging Face format")
        source = self._checkpoints / f"global_step_{step}" / "actor"
        merge = ["verl.model_merger", "merge", "--backend", "fsdp"]
        self._run([*merge, "--local_dir", str(source), "--target_dir", str(draft)])
        if (draft / "lora_adapter").is_dir():
            self._run(["merge_lora", str(draft)])
        # Processor and templates, which verl does not write.
        for path in self._job.parent.glob("*.json*"):
            if not (draft / path.name).exists() and "safetensors" not in path.name:
                shutil.copy2(path, draft / path.name)
        if share := self._settings.parent_share:
            self._driver.log(f"averaging the weights with {share:.0%} of the parent's")
            average_with_parent(draft, self._job.parent, share)

    def _run(
        self,
        module: list[str],
        variables: Mapping[str, str] | None = None,
        follow: Callable[[], object] = lambda: None,
    ) -> None:
        """A module of verl with its arguments, to its end."""
        command = [str(self._python), "-m", *module]
        variables = {**self._environment(), **(variables or {})}
        self._driver.run_trainer(command, variables, self._log, follow)


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
        GrpoRun(driver).run()


if __name__ == "__main__":
    main()
