"""What trainers write while they run: a checkpoint every few steps, and logs of JSON lines."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from .launch.jobs import TrainingProgress


class LogFollower(ABC):
    """Reads a growing log of one JSON object a line as progress."""

    def __init__(self, log: Path) -> None:
        self._log, self._offset = log, 0

    def new_points(self) -> Iterator[TrainingProgress]:
        """The points logged since the last call; a half-written line is left for the next call."""
        if not self._log.is_file():
            return
        with self._log.open("rb") as stream:
            stream.seek(self._offset)
            lines = [line for line in stream if line.endswith(b"\n")]
        for line in lines:
            self._offset += len(line)
            if point := self._point(orjson.loads(line)):
                yield point

    @abstractmethod
    def _point(self, record: dict[str, Any]) -> TrainingProgress | None:
        """The point of a record; None where it is no step."""


def attempt_file(folder: Path, name: str, suffix: str) -> Path:
    """A file of this attempt's own: `NAME-1SUFFIX`, `NAME-2SUFFIX` and so on."""
    return folder / f"{name}-{len(list(folder.glob(f'{name}-*{suffix}'))) + 1}{suffix}"


def checkpoints_by_step(folder: Path, name: re.Pattern[str]) -> dict[int, Path]:
    """Checkpoint folders in ascending order; group 1 of the pattern is the step."""
    entries = folder.iterdir() if folder.is_dir() else ()
    matches = ((name.fullmatch(path.name), path) for path in entries)
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def quarantine_incomplete(
    folder: Path, name: re.Pattern[str], is_complete: Callable[[Path], bool]
) -> list[Path]:
    """Rename half-written checkpoints to `NAME.broken`, `NAME.broken-2` ...; returns these."""
    checkpoints = checkpoints_by_step(folder, name).values()
    return [path.rename(_free_name(path)) for path in checkpoints if not is_complete(path)]


def _free_name(path: Path) -> Path:
    names = (f"{path.name}.broken{f'-{number}' if number > 1 else ''}" for number in count(1))
    return next(free for name in names if not (free := path.with_name(name)).exists())
