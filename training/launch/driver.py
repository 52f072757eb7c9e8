"""The driver's side: a small process that runs a trainer and reports its progress to Dagster.

def main() -> None:
    with open_driver(sys.argv) as driver:
        code = driver.run_trainer([python, "-m", "trainer"], {}, log, follow)
        if code:
            raise TrainingFailedError(exit_reason(code, log), log)
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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from dagster_pipes import PipesEnvVarParamsLoader, open_dagster_pipes

from schemas import FoundryError

from .failures import TrainingFailedError
from .jobs import Message, TrainerJob, TrainingFailure, TrainingFinished, TrainingProgress
from .processes import TRAINER_MARK, find_marked, terminate_processes

DRIVER_LOG = "driver.log"
# Set by a launcher that holds the other end of standard input, which closes when it dies.
PARENT_PIPE = "INTERLEAVE_TRAINING_LEASH"
_GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.5
_STDIN = 0


@dataclass(frozen=True)
class Driver:
    """What a driver's main function works with.

    Attributes:
        log: writes a line to Dagster's log.
        send: sends a message to the launcher.
    """

    job: TrainerJob
    log: Callable[[str], object]
    send: Callable[[Message], object]

    def progress(self, progress: TrainingProgress) -> None:
        """Report a step. Call it for every step that is logged: they make the curves."""
        self.send(Message(kind="progress", progress=progress))

    def run_trainer(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        follow: Callable[[], object],
    ) -> int:
        """Run a trainer to its end, in this process group; terminates all that it leaves running.

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
        with log.open("ab") as output:
            trainer = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,  # ours is the launcher's pipe
                stdout=output,
                stderr=output,
                env=variables,
            )
            try:
                return _follow_to_end(trainer, follow)
            finally:
                terminate_processes(lambda: find_marked(TRAINER_MARK, mark), _GRACE_SECONDS)
                trainer.wait()

    def finish(self, model: Path, metrics: Mapping[str, float]) -> None:
        """Report the model; the last thing a driver does."""
        finished = TrainingFinished(model=model, metrics=dict(metrics))
        self.send(Message(kind="finished", finished=finished))


@contextmanager
def open_driver(argv: Sequence[str]) -> Iterator[Driver]:
    """The driver of the job whose file is the last argument.

    Reports to Dagster where a launcher started this process, and to standard output elsewhere.
    Any error becomes the job's failure; the process then exits with code 1.
    """
    signal.signal(signal.SIGTERM, exit_on_signal)
    if os.environ.pop(PARENT_PIPE, None):
        threading.Thread(target=_terminate_at_end_of_stdin, daemon=True).start()
    job = TrainerJob.model_validate_json(Path(argv[-1]).read_text("utf-8"))
    failed = False
    with _open_driver_channel(job) as driver:
        try:
            yield driver
        except Exception as error:
            failed = True
            driver.send(Message(kind="failed", failed=_failure(error, job.folder)))
    if failed:
        raise SystemExit(1)


@contextmanager
def _open_driver_channel(job: TrainerJob) -> Iterator[Driver]:
    if not PipesEnvVarParamsLoader().is_dagster_pipes_process():
        write = partial(print, flush=True)
        yield Driver(job, write, lambda message: write(message.model_dump_json(exclude_none=True)))
        return
    with open_dagster_pipes() as pipes:
        report = pipes.report_custom_message
        yield Driver(
            job,
            pipes.log.info,
            lambda message: report(message.model_dump(mode="json", exclude_none=True)),
        )


def _failure(error: Exception, folder: Path) -> TrainingFailure:
    if isinstance(error, TrainingFailedError):
        return TrainingFailure(reason=error.reason, log=error.log)
    if isinstance(error, FoundryError):
        return TrainingFailure(reason=str(error))
    traceback.print_exception(error)
    reason = f"its driver failed: {type(error).__name__}: {error}"
    return TrainingFailure(reason=" ".join(reason.split()), log=folder / DRIVER_LOG)


def _follow_to_end(trainer: subprocess.Popen[bytes], follow: Callable[[], object]) -> int:
    while trainer.poll() is None:
        follow()
        with suppress(subprocess.TimeoutExpired):
            trainer.wait(_POLL_SECONDS)  # returns at once when it ends
    follow()
    return trainer.returncode


def exit_on_signal(number: int, _frame: FrameType | None) -> None:
    """A signal handler that ends this process as an exception would, cleaning up."""
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the clean-up
    raise SystemExit(128 + number)


def _terminate_at_end_of_stdin() -> None:
    """Standard input ends when the launcher does, even when it is killed.

    Read without Python's buffer, whose lock a thread must not hold when the interpreter ends.
    """
    while os.read(_STDIN, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
