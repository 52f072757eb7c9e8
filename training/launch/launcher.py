"""What both launchers do: a Pipes session in the job's folder, live progress, a clear outcome."""

import asyncio
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import dagster as dg
from dagster import PipesFileContextInjector, PipesFileMessageReader, open_pipes_session

from inference.engine.progress import Progress
from schemas import FoundryError
from warehouse.file_lock import exclusive_lock

from .driver import DRIVER_LOG
from .failures import TrainingFailedError, exit_reason
from .jobs import (
    LauncherSettings,
    Message,
    TrainerJob,
    TrainingFailure,
    TrainingFinished,
    TrainingOutcome,
    TrainingProgress,
)
from .supervisor import supervised_driver

_POLL_SECONDS = 0.25
# The exit code of a driver that was started; None: it is still running.
ExitCode = Callable[[], int | None]


class Launcher(ABC):
    """Runs the driver of a job to its end."""

    def __init__(self, settings: LauncherSettings) -> None:
        self.settings = settings

    @abstractmethod
    def start(
        self, job: TrainerJob, file: Path, variables: Mapping[str, str]
    ) -> AbstractContextManager[ExitCode]:
        """Start the driver with its job file; leaving the context ends all its processes."""

    async def run(
        self, context: dg.AssetExecutionContext, job: TrainerJob, progress: Progress
    ) -> TrainingOutcome:
        """Run a job from an asset, with live progress in Dagster's log and in `progress`.

        Cancelling it ends the job's processes.

        Raises:
            TrainingFailedError: it crashed, was killed or ended without a model.
            FoundryError: the same job is running already.
        """
        file = job.write()
        messages = _MessageHandler(context, job, progress, self.settings.log_seconds)
        with _exclusive(job), _pipes_session(context, job.folder) as session:
            variables = {**job.environment, **session.get_bootstrap_env_vars()}
            with self.start(job, file, variables) as exit_code:
                while (code := exit_code()) is None:
                    await asyncio.sleep(_POLL_SECONDS)
                    messages.handle_new(session.get_custom_messages())
        messages.handle_new(session.get_custom_messages())
        return messages.outcome(code)


class LocalLauncher(Launcher):
    """Starts drivers as processes of this machine."""

    @contextmanager
    def start(
        self, job: TrainerJob, file: Path, variables: Mapping[str, str]
    ) -> Iterator[ExitCode]:
        """The driver's process."""
        with supervised_driver(job.module, file, variables, self.settings.grace_seconds) as process:
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


def _exclusive(job: TrainerJob) -> AbstractContextManager[None]:
    """Two trainings in one folder would destroy each other's checkpoints."""
    running = FoundryError(
        f"{job.name} is being trained in {job.folder} already; wait for that run or terminate it"
    )
    return exclusive_lock(job.folder / "job.lock", running)


class _MessageHandler:
    """Turns a driver's messages into log lines, curves and an outcome."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        job: TrainerJob,
        progress: Progress,
        log_seconds: float,
    ) -> None:
        self._context, self._job, self._progress = context, job, progress
        self._log_seconds, self._logged_at = log_seconds, float("-inf")
        self._handled = 0
        self._curves: dict[int, TrainingProgress] = {}
        self._finished: TrainingFinished | None = None
        self._failed: TrainingFailure | None = None

    def handle_new(self, messages: Sequence[object]) -> None:
        """Handle those of all messages so far that are new."""
        for payload in messages[self._handled :]:
            message = Message.model_validate(payload)
            self._finished = message.finished or self._finished
            self._failed = message.failed or self._failed
            if message.progress:
                self._report(message.progress)
        self._handled = len(messages)

    def outcome(self, code: int) -> TrainingOutcome:
        """The outcome of a driver that ended with an exit code.

        Raises:
            TrainingFailedError: no model.
        """
        log = self._job.folder / DRIVER_LOG
        if self._failed:
            raise self._error(self._failed.reason, self._failed.log or log)
        if code:
            raise self._error(exit_reason(code, log), log)
        if self._finished is None:
            raise self._error("its driver ended without a model", log)
        model, metrics = self._finished.model, self._finished.metrics
        if not model.is_dir():
            raise self._error(f"there is no model in {model}", log)
        curves = [self._curves[step] for step in sorted(self._curves)]
        return TrainingOutcome(metrics=metrics, curves=curves, model=model)

    def _report(self, progress: TrainingProgress) -> None:
        self._curves[progress.step] = progress
        self._progress.update(progress.step, progress.total, progress.note())
        now = time.monotonic()
        if now - self._logged_at >= self._log_seconds or progress.step >= progress.total:
            self._logged_at = now
            step = f"step {progress.step} of {progress.total}"
            self._context.log.info(f"{self._job.name}: {step}, {progress.note()}")

    def _error(self, reason: str, log: Path) -> TrainingFailedError:
        return TrainingFailedError(f"training {self._job.name} failed: {reason}", log)
