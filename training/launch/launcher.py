"""Runs a driver for an asset: a Pipes session in the job's folder, live progress, an outcome.

The driver is a process of this machine, or a job of a Ray cluster that shares its file system.
"""

import asyncio
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Event, Thread

import dagster as dg
import orjson
import psutil
from dagster import PipesFileContextInjector, open_pipes_session
from dagster_pipes import PipesParams

from inference.calls.progress import Progress
from inference.servers import processes
from inference.servers.processes import exit_reason
from schemas import FoundryError
from warehouse.file_lock import exclusive_lock

from .driver import TrainingFailedError
from .jobs import (
    LauncherSettings,
    Message,
    TrainerJob,
    TrainingFailure,
    TrainingFinished,
    TrainingOutcome,
    TrainingProgress,
)
from .ray_job import RayDriver, StartDriver

_POLL_SECONDS = 0.25
_READ_SECONDS = 0.05
_LOG_SECONDS = 10.0  # at least between two progress lines in Dagster's log


async def run_job(
    context: dg.AssetExecutionContext,
    job: TrainerJob,
    settings: LauncherSettings,
    progress: Progress,
) -> TrainingOutcome:
    """Run a job from an asset, with live progress in Dagster's log and in `progress`.

    Cancelling it ends the job's processes. Where the job still runs, which a killed run left, it is
    followed instead.

    Raises:
        TrainingFailedError: it crashed, was killed or ended without a model.
        FoundryError: the same job is running already, or the Ray cluster is unavailable.
    """
    file = job.write()
    messages = _MessageHandler(context, job, progress)
    # Two trainings in one folder would destroy each other's checkpoints.
    running = FoundryError(
        f"{job.name} is being trained in {job.folder} already; wait for that run or terminate it"
    )
    with exclusive_lock(job.folder / "job.lock", running):
        kind = RayDriver if settings.kind == "ray" else _LocalDriver
        driver: _LocalDriver | RayDriver = kind(job, file, settings)
        again = driver.running is not None
        # The driver first: one that is found is ended from then on, when this is cancelled.
        with driver.run() as start, _pipes_session(context, job.folder, again) as session:
            if again:
                context.log.info(f"{job.name} is being trained already: following it")
            exit_code = start({**job.environment, **session.get_bootstrap_env_vars()})
            while (code := exit_code()) is None:
                await asyncio.sleep(_POLL_SECONDS)
                messages.handle_new(session.get_custom_messages())
    messages.handle_new(session.get_custom_messages())
    return messages.outcome(code)


@dataclass(frozen=True)
class _LocalDriver:
    """A job's driver as a process of this machine."""

    job: TrainerJob
    file: Path
    settings: LauncherSettings

    @cached_property
    def running(self) -> psutil.Process | None:
        """What a killed run left, where that is to be followed."""
        return processes.find_driver(self.job.module, self.file) if self.settings.detached else None

    @contextmanager
    def run(self) -> Iterator[StartDriver]:
        grace, leash = self.settings.grace_seconds, not self.settings.detached
        with ExitStack() as stack:
            if self.running:
                following = processes.followed_driver(self.running, self.job.folder, grace)
                exit_code = stack.enter_context(following)
                yield lambda _: exit_code
                return
            start = partial(processes.supervised_driver, self.job.module, self.file)
            yield lambda variables: stack.enter_context(start(variables, grace, leash)).poll


@contextmanager
def _pipes_session(
    context: dg.AssetExecutionContext, folder: Path, again: bool
) -> Iterator[dg.PipesSession]:
    """Context and messages are files in the job's folder, which a cluster's nodes see as well.

    Args:
        again: read the messages of a driver that runs already, from the first one.
    """
    injector = PipesFileContextInjector(str(folder / "pipes_context.json"))
    reader = _MessageFile(folder / "pipes_messages.jsonl", again)
    with ExitStack() as stack:
        with warnings.catch_warnings():
            # Dagster warns about its own use of a preview feature.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            session = stack.enter_context(open_pipes_session(context, injector, reader))
        yield session


@dataclass
class _MessageFile(dg.PipesMessageReader):
    """Reads messages from a file: `PipesFileMessageReader` would empty one that is there."""

    path: Path
    again: bool

    @contextmanager
    def read_messages(self, handler: dg.PipesMessageHandler) -> Iterator[PipesParams]:
        with self.path.open("ab" if self.again else "wb"):
            pass
        ended = Event()
        thread = Thread(target=self._read, args=(handler, ended), daemon=True)
        thread.start()
        try:
            yield {"path": str(self.path), "include_stdio_in_messages": False}
        finally:
            ended.set()
            thread.join()
            self.path.unlink(missing_ok=True)

    def no_messages_debug_text(self) -> str:
        return f"No messages were written to {self.path}."

    def _read(self, handler: dg.PipesMessageHandler, ended: Event) -> None:
        with self.path.open("rb") as stream:
            line = b""
            while True:
                last = ended.is_set()  # what was written until then is read
                while (line := line + stream.readline()).endswith(b"\n"):
                    handler.handle_message(orjson.loads(line))
                    line = b""
                if last:
                    return
                ended.wait(_READ_SECONDS)


@dataclass
class _MessageHandler:
    """Turns a driver's messages into log lines, curves and an outcome."""

    context: dg.AssetExecutionContext
    job: TrainerJob
    progress: Progress
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
        log = self.job.folder / processes.DRIVER_LOG
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
        if now - self.logged_at >= _LOG_SECONDS or progress.step >= progress.total:
            self.logged_at = now
            step = f"step {progress.step} of {progress.total}"
            self.context.log.info(f"{self.job.name}: {step}, {progress.note()}")

    def _error(self, reason: str, log: Path) -> TrainingFailedError:
        return TrainingFailedError(f"training {self.job.name} failed: {reason}", log)
