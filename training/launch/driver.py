"""The driver's side: a small process of ours that runs a trainer and tells Dagster how it goes.

def main() -> None:
    with open_driver(sys.argv) as driver:
        code = driver.run_trainer([python, "-m", "trainer"], {}, log, follow)
        if code:
            driver.fail(why_it_ended(code, log), log)
        driver.finish(model, {"loss": 0.1})
"""

import os
import signal
import subprocess
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn, Protocol

from dagster_pipes import PipesContext, PipesEnvVarParamsLoader, open_dagster_pipes

from schemas import FoundryError

from .failures import TrainingFailed
from .jobs import Message, TrainerJob, TrainingFailure, TrainingFinished, TrainingProgress
from .processes import TRAINER_MARK, end_processes, marked

DRIVER_LOG = "driver.log"
# Set by a launcher whose death the driver shall notice: standard input ends with it.
LEASH = "INTERLEAVE_TRAINING_LEASH"
_GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.5
_STDIN = 0


class Channel(Protocol):
    """Where messages go."""

    def log(self, text: str) -> None:
        """A line for people."""

    def send(self, message: Message) -> None:
        """A message for the launcher."""


class Driver:
    """What a driver's main function works with."""

    def __init__(self, job: TrainerJob, channel: Channel) -> None:
        self.job, self._channel = job, channel

    def progress(self, progress: TrainingProgress) -> None:
        """Report a step. Call it for every step that is logged: they make the curves."""
        self._channel.send(Message(kind="progress", progress=progress))

    def log(self, text: str) -> None:
        """A line in Dagster's log."""
        self._channel.log(text)

    def run_trainer(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        follow: Callable[[], None],
    ) -> int:
        """Run a trainer to its end, in this process group; whatever it leaves running is ended.

        Args:
            environment: variables added to this process's own.
            log: its output is appended here.
            follow: called about twice a second and once after the end; reads the trainer's files
                and reports progress. What it raises ends the trainer.

        Returns:
            Its exit code; negative: the signal that ended it.
        """
        mark = uuid.uuid4().hex
        variables = {**os.environ, **environment, TRAINER_MARK: mark}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output, _no_stdin() as nothing:
            trainer = subprocess.Popen(
                list(command), stdin=nothing, stdout=output, stderr=output, env=variables
            )
            try:
                return _followed(trainer, follow)
            finally:
                end_processes(lambda: marked(TRAINER_MARK, mark), _GRACE_SECONDS)
                trainer.wait()

    def finish(self, model: Path, metrics: Mapping[str, float]) -> None:
        """Report that the model is there; the last thing a driver does."""
        finished = TrainingFinished(model=model, metrics=dict(metrics))
        self._channel.send(Message(kind="finished", finished=finished))

    def fail(self, reason: str, log: Path | None = None) -> NoReturn:
        """Give up.

        Raises:
            TrainingFailed: always; `open_driver` reports it.
        """
        raise TrainingFailed(reason, log)


@contextmanager
def open_driver(argv: Sequence[str]) -> Iterator[Driver]:
    """The driver of the job whose file is the last argument.

    Reports to Dagster where a launcher started this process, and to standard output elsewhere.
    Any error becomes the job's failure; the process then exits with code 1.
    """
    signal.signal(signal.SIGTERM, exit_on_signal)
    _die_with_the_launcher()
    job = TrainerJob.model_validate_json(Path(argv[-1]).read_text("utf-8"))
    failed = False
    with _channel() as channel:
        try:
            yield Driver(job, channel)
        except Exception as error:
            failed = True
            channel.send(Message(kind="failed", failed=_failure(error, job.folder)))
    if failed:
        raise SystemExit(1)


def _failure(error: Exception, folder: Path) -> TrainingFailure:
    if isinstance(error, TrainingFailed):
        return TrainingFailure(reason=error.reason, log=error.log)
    if isinstance(error, FoundryError):
        return TrainingFailure(reason=str(error))
    traceback.print_exception(error)
    reason = f"its driver failed: {type(error).__name__}: {error}"
    return TrainingFailure(reason=" ".join(reason.split()), log=folder / DRIVER_LOG)


def _followed(trainer: subprocess.Popen[bytes], follow: Callable[[], None]) -> int:
    while trainer.poll() is None:
        follow()
        with suppress(subprocess.TimeoutExpired):
            trainer.wait(_POLL_SECONDS)  # its end is noticed at once
    follow()
    return trainer.returncode


@contextmanager
def _no_stdin() -> Iterator[int]:
    """A trainer must not read the leash."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def exit_on_signal(number: int, _frame: FrameType | None) -> None:
    """A signal handler that ends this process like an exception would, cleaning up."""
    signal.signal(number, signal.SIG_IGN)  # a second one is not to interrupt that
    raise SystemExit(128 + number)


def _die_with_the_launcher() -> None:
    if os.environ.pop(LEASH, None):
        threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    """Standard input ends when the launcher does, even when it is killed.

    Read without Python's buffer, whose lock a thread must not hold when the interpreter ends.
    """
    while os.read(_STDIN, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _channel() -> Iterator[Channel]:
    if not PipesEnvVarParamsLoader().is_dagster_pipes_process():
        yield _Printed()
        return
    with open_dagster_pipes() as pipes:
        yield _Piped(pipes)


class _Piped:
    """To Dagster."""

    def __init__(self, pipes: PipesContext) -> None:
        self._pipes = pipes

    def log(self, text: str) -> None:
        self._pipes.log.info(text)

    def send(self, message: Message) -> None:
        self._pipes.report_custom_message(message.model_dump(mode="json", exclude_none=True))


class _Printed:
    """To whoever started the driver by hand."""

    def log(self, text: str) -> None:
        print(text, flush=True)

    def send(self, message: Message) -> None:
        print(message.model_dump_json(exclude_none=True), flush=True)
