"""The driver's side: a small process that runs a trainer and reports its progress to Dagster.

def main() -> None:
    with open_driver(sys.argv) as driver:
        driver.run_trainer([python, "-m", "trainer"], {}, log, follow)
        driver.finish(model, {"loss": 0.1})
"""

import re
import subprocess
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import orjson
from dagster_pipes import PipesContext, PipesEnvVarParamsLoader, open_dagster_pipes

from inference.servers.gpus import claimed_gpus, visible_devices
from inference.servers.processes import DRIVER_LOG, exit_reason, prepare_driver, program_of_driver
from schemas import FoundryError
from warehouse.atomic import atomic_path, atomic_write

from ..row_lengths import left_out_metrics
from .jobs import Message, TrainerJob, TrainingFailure, TrainingFinished, TrainingProgress

_POLL_SECONDS = 0.5
_SECONDS_FILE = "trainer-seconds.txt"  # in the job's folder: how long its trainers have run
_SPEED_STEPS = 20  # newest steps whose median duration predicts the remaining time


class TrainingFailedError(FoundryError):
    """A trainer did not finish; gives the reason in one line and the path of its log."""

    def __init__(self, reason: str, log: Path | None = None) -> None:
        self.reason, self.log = reason, log
        super().__init__(f"{reason} (log: {log})" if log else reason)


@dataclass(frozen=True)
class Driver:
    """What a driver's main function works with; `pipes` is None where it was started by hand."""

    job: TrainerJob
    pipes: PipesContext | None

    def log(self, line: str) -> None:
        """Write a line to Dagster's log, or to standard output."""
        if self.pipes:
            self.pipes.log.info(line)
        else:
            print(line, flush=True)

    def send(self, message: Message) -> None:
        """Send a message to the launcher, or write it to standard output."""
        if self.pipes:
            content = message.model_dump(mode="json", exclude_none=True)
            self.pipes.report_custom_message(content)
        else:
            print(message.model_dump_json(exclude_none=True), flush=True)

    def progress(self, progress: TrainingProgress) -> None:
        """Report a step. Call it for every step that is logged: they make the curves."""
        self.send(Message(kind="progress", progress=progress))

    def publish(self, write: Callable[[Path], object]) -> Path:
        """The job's model in Hugging Face format; `write` fills its folder unless it is there."""
        model = self.job.folder / "model"
        if not model.is_dir():
            with atomic_path(model, model.with_suffix(".partial")) as draft:
                write(draft)
        return model

    def finish(self, model: Path, metrics: dict[str, float]) -> None:
        """Report the model; the last thing a driver does. Adds the `hours` that trainers ran, and
        `rows_left_out`."""
        metrics = metrics | left_out_metrics(self.job.folder) | _trainer_hours(self.job.folder)
        finished = TrainingFinished(model=model, metrics=metrics)
        self.send(Message(kind="finished", finished=finished))

    def run_trainer(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        follow: Callable[[], object] = lambda: None,
    ) -> None:
        """Run a trainer to its end, in this process group; terminates all that it leaves running.

        Args:
            environment: variables added to this process's own.
            log: its output is appended here.
            follow: called about twice a second and once after the end; reads the trainer's files
                and reports progress. What it raises ends the trainer.

        Raises:
            TrainingFailedError: it ended with an error or by a signal.
        """
        claimed = visible_devices(self.job.devices)
        devices = {"CUDA_VISIBLE_DEVICES": claimed} if claimed else {}
        with (
            _Stopwatch(self.job.folder) as stopwatch,
            program_of_driver(command, {**devices, **environment}, log) as trainer,
        ):
            while trainer.poll() is None:
                follow()
                stopwatch.save()
                with suppress(subprocess.TimeoutExpired):
                    trainer.wait(_POLL_SECONDS)  # returns at once when it ends
            follow()
        if trainer.returncode:
            raise TrainingFailedError(exit_reason(trainer.returncode, log), log)


@dataclass
class LogFollower(ABC):
    """Reads a growing log of one JSON object a line as progress."""

    log: Path
    offset: int = field(default=0, init=False)
    step_seconds: list[float] = field(default_factory=list, init=False)

    def new_points(self) -> Iterator[TrainingProgress]:
        """The points logged since the last call; a half-written line is left for the next call."""
        if not self.log.is_file():
            return
        with self.log.open("rb") as stream:
            stream.seek(self.offset)
            lines = [line for line in stream if line.endswith(b"\n")]
        for line in lines:
            self.offset += len(line)
            if point := self._point(orjson.loads(line)):
                yield point

    def _seconds_left(self, steps: int) -> float:
        """Time for more steps, predicted from the newest ones."""
        return steps * median(self.step_seconds[-_SPEED_STEPS:])

    @abstractmethod
    def _point(self, record: dict[str, Any]) -> TrainingProgress | None:
        """The point of a record; None where it is no step."""


@contextmanager
def open_driver(argv: Sequence[str]) -> Iterator[Driver]:
    """The driver of the job whose file is the last argument.

    Reports to Dagster where a launcher started this process, and to standard output elsewhere.
    Any error becomes the job's failure; the process then exits with code 1.
    """
    prepare_driver()
    job = TrainerJob.model_validate_json(Path(argv[-1]).read_text("utf-8"))
    by_dagster = PipesEnvVarParamsLoader().is_dagster_pipes_process()
    failed = None
    with open_dagster_pipes() if by_dagster else nullcontext() as pipes:
        driver = Driver(job, pipes)
        try:
            name = f"the training of {job.name}"
            with claimed_gpus(job.devices, job.memory, name, cache(driver.log)):
                yield driver
        except Exception as error:
            failed = _failure(error, job.folder)
            driver.send(Message(kind="failed", failed=failed))
    if failed:
        raise SystemExit(1)


class _Stopwatch:
    """Seconds that the trainers of a job have run, in all attempts, also killed ones."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _SECONDS_FILE
        self._start = self._saved = time.monotonic()
        self._before = float(self._file.read_text()) if self._file.is_file() else 0.0

    def __enter__(self) -> "_Stopwatch":
        return self

    def __exit__(self, *_: object) -> None:
        self.save(every=0)

    def save(self, every: float = 10.0) -> None:
        """Write the file, unless that was less than `every` seconds ago."""
        now = time.monotonic()
        if now - self._saved >= every:
            self._saved = now
            atomic_write(self._file, str(self._before + now - self._start))


def _trainer_hours(folder: Path) -> dict[str, float]:
    """The metric `hours` of a job; empty where none of its trainers has run."""
    file = folder / _SECONDS_FILE
    return {"hours": float(file.read_text()) / 3600} if file.is_file() else {}


def attempt_file(folder: Path, name: str, suffix: str) -> Path:
    """A file of this attempt's own: `NAME-1SUFFIX`, `NAME-2SUFFIX` and so on."""
    return folder / f"{name}-{len(list(folder.glob(f'{name}-*{suffix}'))) + 1}{suffix}"


def complete_checkpoints(
    folder: Path,
    name: re.Pattern[str],
    is_complete: Callable[[Path], bool],
    log: Callable[[str], object],
) -> dict[int, Path]:
    """Complete checkpoints by step, ascending; half-written ones are moved away, with a log line.

    Args:
        name: of a checkpoint's folder; group 1 is the step.
    """
    entries = folder.iterdir() if folder.is_dir() else ()
    matches = [(name.fullmatch(path.name), path) for path in entries]
    checkpoints = dict(sorted((int(match[1]), path) for match, path in matches if match))
    for step, path in list(checkpoints.items()):
        if not is_complete(path):
            del checkpoints[step]
            log(f"a half-written checkpoint was moved to {path.rename(_free_name(path))}")
    return checkpoints


def _failure(error: Exception, folder: Path) -> TrainingFailure:
    if isinstance(error, TrainingFailedError):
        return TrainingFailure(reason=error.reason, log=error.log)
    if isinstance(error, FoundryError):
        return TrainingFailure(reason=str(error))
    traceback.print_exception(error)
    reason = f"its driver failed: {type(error).__name__}: {error}"
    return TrainingFailure(reason=" ".join(reason.split()), log=folder / DRIVER_LOG)


def _free_name(path: Path) -> Path:
    """`NAME.broken`, `NAME.broken-2` and so on."""
    names = (f"{path.name}.broken{f'-{number}' if number > 1 else ''}" for number in count(1))
    return next(free for name in names if not (free := path.with_name(name)).exists())
