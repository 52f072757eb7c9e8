"""Runs a driver for an asset: a Pipes session in the job's folder, live progress, an outcome.

The driver is a process of this machine, or a job of a Ray cluster that shares its file system.
"""

import asyncio
import hashlib
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from dagster import PipesFileContextInjector, PipesFileMessageReader, open_pipes_session

from inference.engine.progress import Progress
from schemas import FoundryError
from warehouse.file_lock import exclusive_lock

from . import supervisor
from .driver import TrainingFailedError, exit_reason
from .jobs import (
    LauncherSettings,
    Message,
    TrainerJob,
    TrainingFailure,
    TrainingFinished,
    TrainingOutcome,
    TrainingProgress,
)

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

_POLL_SECONDS = 0.25
_RAY_POLL_SECONDS = 1.0
_RAY_CLEAN_UP_SECONDS = 10.0
_RAY_STOP_SECONDS = 60.0
_RAY_SILENT_SECONDS = 300.0  # without a job server, as while a head restarts


async def run_job(
    context: dg.AssetExecutionContext,
    job: TrainerJob,
    settings: LauncherSettings,
    progress: Progress,
) -> TrainingOutcome:
    """Run a job from an asset, with live progress in Dagster's log and in `progress`.

    Cancelling it ends the job's processes.

    Raises:
        TrainingFailedError: it crashed, was killed or ended without a model.
        FoundryError: the same job is running already, or the Ray cluster is unavailable.
    """
    file = job.write()
    messages = _MessageHandler(context, job, progress, settings.log_seconds)
    # Two trainings in one folder would destroy each other's checkpoints.
    running = FoundryError(
        f"{job.name} is being trained in {job.folder} already; wait for that run or terminate it"
    )
    with (
        exclusive_lock(job.folder / "job.lock", running),
        _pipes_session(context, job.folder) as session,
    ):
        variables = {**job.environment, **session.get_bootstrap_env_vars()}
        with _started_driver(job, file, variables, settings) as exit_code:
            while (code := exit_code()) is None:
                await asyncio.sleep(_POLL_SECONDS)
                messages.handle_new(session.get_custom_messages())
    messages.handle_new(session.get_custom_messages())
    return messages.outcome(code)


@contextmanager
def _started_driver(
    job: TrainerJob, file: Path, variables: Mapping[str, str], settings: LauncherSettings
) -> Iterator[Callable[[], int | None]]:
    """Gives the driver's exit code, None while it runs; leaving ends all of its processes."""
    if settings.kind == "ray":
        with _ray_job(job, file, variables, settings) as exit_code:
            yield exit_code
    else:
        grace = settings.grace_seconds
        with supervisor.supervised_driver(job.module, file, variables, grace) as process:
            yield process.poll


@contextmanager
def _pipes_session(context: dg.AssetExecutionContext, folder: Path) -> Iterator[dg.PipesSession]:
    """Context and messages are files in the job's folder, which a cluster's nodes see as well."""
    injector = PipesFileContextInjector(str(folder / "pipes_context.json"))
    reader = PipesFileMessageReader(str(folder / "pipes_messages.jsonl"))
    with ExitStack() as stack:
        with warnings.catch_warnings():
            # Dagster warns about its own use of a preview feature.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            session = stack.enter_context(open_pipes_session(context, injector, reader))
        yield session


@dataclass
class _MessageHandler:
    """Turns a driver's messages into log lines, curves and an outcome."""

    context: dg.AssetExecutionContext
    job: TrainerJob
    progress: Progress
    log_seconds: float
    logged_at: float = float("-inf")
    handled: int = 0
    curves: dict[int, TrainingProgress] = field(default_factory=dict)
    finished: TrainingFinished | None = None
    failed: TrainingFailure | None = None

    def handle_new(self, messages: Sequence[object]) -> None:
        """Handle those of all messages so far that are new."""
        for payload in messages[self.handled :]:
            message = Message.model_validate(payload)
            self.finished = message.finished or self.finished
            self.failed = message.failed or self.failed
            if message.progress:
                self._report(message.progress)
        self.handled = len(messages)

    def outcome(self, code: int) -> TrainingOutcome:
        """The outcome of a driver that ended with an exit code, or `TrainingFailedError`."""
        log = self.job.folder / supervisor.DRIVER_LOG
        if self.failed:
            raise self._error(self.failed.reason, self.failed.log or log)
        if code:
            raise self._error(exit_reason(code, log), log)
        if self.finished is None:
            raise self._error("its driver ended without a model", log)
        if not self.finished.model.is_dir():
            raise self._error(f"there is no model in {self.finished.model}", log)
        curves = [self.curves[step] for step in sorted(self.curves)]
        return TrainingOutcome(**dict(self.finished), curves=curves)

    def _report(self, progress: TrainingProgress) -> None:
        self.curves[progress.step] = progress
        self.progress.update(progress.step, progress.total, progress.note())
        now = time.monotonic()
        if now - self.logged_at >= self.log_seconds or progress.step >= progress.total:
            self.logged_at = now
            step = f"step {progress.step} of {progress.total}"
            self.context.log.info(f"{self.job.name}: {step}, {progress.note()}")

    def _error(self, reason: str, log: Path) -> TrainingFailedError:
        return TrainingFailedError(f"training {self.job.name} failed: {reason}", log)


@contextmanager
def _ray_job(
    job: TrainerJob, file: Path, variables: Mapping[str, str], settings: LauncherSettings
) -> Iterator[Callable[[], int | None]]:
    """The driver as a Ray job; gives its exit code, None while it runs.

    One that a killed run of the same job left is stopped first.
    """
    client = _ray_client(settings.address or "")
    # The same for every attempt at a job, so that a leftover one is found.
    name = f"interleave-{hashlib.sha256(str(job.folder).encode()).hexdigest()[:16]}"
    python, grace = settings.python or sys.executable, settings.grace_seconds
    command = [python, "-m", supervisor.__name__, job.module, str(file), str(grace)]
    # Ray's own KILL must come after the supervisor has ended everything.
    wait = {"RAY_JOB_STOP_WAIT_TIME_S": str(int(grace + _RAY_CLEAN_UP_SECONDS))}
    _stop_ray_job(client, name)
    client.submit_job(
        entrypoint=shlex.join(command),
        submission_id=name,
        entrypoint_num_gpus=job.gpus or None,
        runtime_env={"env_vars": {**variables, **wait}},
        metadata={"name": job.name},
    )
    try:
        yield _RayJobStatus(client, name).exit_code
    finally:
        _stop_ray_job(client, name)


def _ray_client(address: str) -> "JobSubmissionClient":
    try:
        from ray.exceptions import AuthenticationError
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise FoundryError("the ray launcher needs Ray: pip install 'ray[default]'") from error
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise FoundryError(
            f"the Ray job server at {address} rejects our token: set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as on the cluster"
        ) from error
    except (ConnectionError, RuntimeError) as error:
        raise FoundryError(
            f"no Ray job server at {address}: start the cluster, or correct launcher.address"
        ) from error


def _stop_ray_job(client: "JobSubmissionClient", name: str) -> None:
    """Stop a job if there is one, wait until it is, and forget it."""
    with suppress(RuntimeError, OSError):  # no such job; or no job server: the next run stops it
        client.stop_job(name)
        deadline = time.monotonic() + _RAY_STOP_SECONDS
        while not client.get_job_status(name).is_terminal():
            if time.monotonic() > deadline:
                raise FoundryError(f"Ray did not stop job {name}; stop it with `ray job stop`")
            time.sleep(_RAY_POLL_SECONDS)
        client.delete_job(name)


@dataclass
class _RayJobStatus:
    """Asks for a job's exit code; a job server that is silent for a while is asked again."""

    client: "JobSubmissionClient"
    name: str
    answered_at: float = field(default_factory=time.monotonic)
    asked_at: float = float("-inf")

    def exit_code(self) -> int | None:
        """None while it runs, and where the job server does not say.

        Raises:
            FoundryError: the job server has been silent for minutes, or does not know the job.
        """
        now = time.monotonic()
        if now - self.asked_at < _RAY_POLL_SECONDS:
            return None
        self.asked_at = now
        try:
            info = self.client.get_job_info(self.name)
        except Exception as error:  # whatever its HTTP client and Ray raise
            self._require_patience(error)
            return None
        self.answered_at = time.monotonic()
        if not info.status.is_terminal():
            return None
        return 0 if info.status == "SUCCEEDED" else info.driver_exit_code or 1

    def _require_patience(self, error: Exception) -> None:
        silent = time.monotonic() - self.answered_at
        if silent > _RAY_SILENT_SECONDS:
            reason = " ".join(str(error).split())[:200]
            raise FoundryError(
                f"Ray's job server has not answered about job {self.name} for {silent:.0f} s "
                f"({reason}): start the cluster, then run again to resume"
            ) from error
