"""What both launchers do: a Pipes session in the job's folder, live progress, a clear outcome."""

import asyncio
import fcntl
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import dagster as dg
from dagster import PipesFileContextInjector, PipesFileMessageReader, open_pipes_session

from inference.engine.progress import Progress
from schemas import FoundryError

from .driver import DRIVER_LOG
from .failures import TrainingFailed, why_it_ended
from .jobs import (
    Message,
    TrainerJob,
    TrainingFailure,
    TrainingFinished,
    TrainingOutcome,
    TrainingProgress,
)
from .settings import LauncherSettings

_POLL_SECONDS = 0.25


class Running(ABC):
    """A driver that was started."""

    @abstractmethod
    def code(self) -> int | None:
        """Its exit code; None: it is still running."""


class Launcher(ABC):
    """Runs the driver of a job to its end."""

    def __init__(self, settings: LauncherSettings) -> None:
        self.settings = settings

    @abstractmethod
    def start(
        self, job: TrainerJob, file: Path, variables: Mapping[str, str]
    ) -> AbstractContextManager[Running]:
        """Start the driver with its job file; leaving the context ends all its processes."""

    async def run(
        self, context: dg.AssetExecutionContext, job: TrainerJob, progress: Progress
    ) -> TrainingOutcome:
        """Run a job from an asset, with live progress in Dagster's log and in `progress`.

        Cancelling it ends the job's processes.

        Raises:
            TrainingFailed: it crashed, was killed or ended without a model; one line and the log.
            FoundryError: the same job is running already.
        """
        file = job.write()
        listener = _Listener(context, job, progress, self.settings.log_seconds)
        with _alone(job), _session(context, job.folder) as session:
            variables = {**job.environment, **session.get_bootstrap_env_vars()}
            with self.start(job, file, variables) as running:
                while running.code() is None:
                    await asyncio.sleep(_POLL_SECONDS)
                    listener.hear(session.get_custom_messages())
                code = running.code()
        listener.hear(session.get_custom_messages())
        return listener.outcome(code or 0)


def launcher_of(settings: LauncherSettings) -> Launcher:
    """The launcher that a profile asks for."""
    if settings.kind == "ray":
        from .ray_jobs import RayLauncher

        return RayLauncher(settings)
    from .local import LocalLauncher

    return LocalLauncher(settings)


@contextmanager
def _session(context: dg.AssetExecutionContext, folder: Path) -> Iterator[dg.PipesSession]:
    """Context and messages are files in the job's folder, which a cluster's nodes see as well."""
    injector = PipesFileContextInjector(str(folder / "pipes_context.json"))
    reader = PipesFileMessageReader(str(folder / "pipes_messages.jsonl"))
    with ExitStack() as stack:
        with warnings.catch_warnings():
            # Dagster's own use of what it calls a preview is nothing to tell our users.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            session = stack.enter_context(open_pipes_session(context, injector, reader))
        yield session


@contextmanager
def _alone(job: TrainerJob) -> Iterator[None]:
    """Two trainings in one folder would destroy each other's checkpoints."""
    with (job.folder / "job.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FoundryError(
                f"{job.name} is being trained in {job.folder} already; wait for that run or "
                "terminate it"
            ) from error
        yield


class _Listener:
    """Turns messages into log lines, curves and an outcome."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        job: TrainerJob,
        progress: Progress,
        log_seconds: float,
    ) -> None:
        self._context, self._job, self._progress = context, job, progress
        self._log_seconds, self._logged = log_seconds, float("-inf")
        self._heard = 0
        self._curves: dict[int, TrainingProgress] = {}
        self._finished: TrainingFinished | None = None
        self._failed: TrainingFailure | None = None

    def hear(self, messages: Sequence[object]) -> None:
        """Take in those of all messages so far that are new."""
        for payload in messages[self._heard :]:
            self._take(Message.model_validate(payload))
        self._heard = len(messages)

    def outcome(self, code: int) -> TrainingOutcome:
        """What a driver that ended with a code leaves.

        Raises:
            TrainingFailed: no model.
        """
        log = self._job.folder / DRIVER_LOG
        if self._failed:
            raise self._failure(self._failed.reason, self._failed.log or log)
        if code:
            raise self._failure(why_it_ended(code, log), log)
        if self._finished is None:
            raise self._failure("its driver ended without a model", log)
        if not self._finished.model.is_dir():
            raise self._failure(f"there is no model in {self._finished.model}", log)
        curves = [self._curves[step] for step in sorted(self._curves)]
        return TrainingOutcome(
            metrics=self._finished.metrics, curves=curves, model=self._finished.model
        )

    def _take(self, message: Message) -> None:
        self._finished = message.finished or self._finished
        self._failed = message.failed or self._failed
        if message.progress:
            self._advance(message.progress)

    def _advance(self, progress: TrainingProgress) -> None:
        self._curves[progress.step] = progress
        self._progress.update(progress.step, progress.total, progress.note())
        if time.monotonic() - self._logged >= self._log_seconds or progress.step >= progress.total:
            self._logged = time.monotonic()
            where = f"step {progress.step} of {progress.total}"
            self._context.log.info(f"{self._job.name}: {where}, {progress.note()}")

    def _failure(self, reason: str, log: Path) -> TrainingFailed:
        return TrainingFailed(f"training {self._job.name} failed: {reason}", log)
