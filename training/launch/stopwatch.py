"""How long the trainers of a job have run."""

import time
from pathlib import Path

from warehouse.atomic import atomic_write

_FILE = "trainer-seconds.txt"  # in the job's folder


class Stopwatch:
    """Seconds that the trainers of a job have run, in all attempts, also killed ones."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _FILE
        self._start = self._saved = time.monotonic()
        self._before = float(self._file.read_text()) if self._file.is_file() else 0.0

    def __enter__(self) -> "Stopwatch":
        return self

    def __exit__(self, *_: object) -> None:
        self.save(every=0)

    def save(self, every: float = 10.0) -> None:
        """Write the file, unless that was less than `every` seconds ago."""
        now = time.monotonic()
        if now - self._saved >= every:
            self._saved = now
            atomic_write(self._file, str(self._before + now - self._start))


def trainer_hours(folder: Path) -> dict[str, float]:
    """The metric `hours` of a job; empty where none of its trainers has run."""
    file = folder / _FILE
    return {"hours": float(file.read_text()) / 3600} if file.is_file() else {}
