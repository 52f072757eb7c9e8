"""What a rehearsal ran and measured, as a table and as JSON."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

import psutil
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from inference.servers.instance import home_servers
from warehouse import Home
from warehouse.atomic import atomic_write

from .rewriter import Kind, Substitution

_POLL_SECONDS = 0.5
FILE = "rehearsal.json"
_TITLES: dict[Kind, str] = {
    "model": "Substituted: models and services",
    "size": "Made smaller",
    "gpu": "Only a GPU (or more machines) can show",
}


@dataclass
class Measured:
    """Seconds; peak of resident memory, summed over this process, its children and the home's
    servers (shared pages count in each); bytes that the home has grown by."""

    seconds: float = 0.0
    peak_bytes: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True)
class Stage:
    """A stage that was run.

    Args:
        ran: what it made, in a few words; of one that failed, why.
    """

    name: str
    ran: str
    measured: Measured
    failed: bool = False


@dataclass(frozen=True)
class Report:
    """A rehearsal. `stages` end with the one that failed, if one did."""

    profile: str
    home: Home
    stages: tuple[Stage, ...]
    substitutions: tuple[Substitution, ...]

    @property
    def failed(self) -> bool:
        return any(stage.failed for stage in self.stages)


@contextmanager
def measured(home: Home) -> Iterator[Measured]:
    """Filled when the context ends, also by an error."""
    result, ended = Measured(), threading.Event()

    def watch() -> None:
        while True:
            result.peak_bytes = max(result.peak_bytes, _resident_bytes(home))
            if ended.wait(_POLL_SECONDS):
                return

    watching = threading.Thread(target=watch, name="memory", daemon=True)
    started, before = time.monotonic(), _disk_bytes(home)
    watching.start()
    try:
        yield result
    finally:
        ended.set()
        watching.join()
        result.seconds = time.monotonic() - started
        result.disk_bytes = _disk_bytes(home) - before


def _resident_bytes(home: Home) -> int:
    roots = [psutil.Process()]
    for folder in home_servers(home):
        if (state := folder.state()) and folder.is_supervised:
            with suppress(psutil.NoSuchProcess):
                roots.append(psutil.Process(state.pid))
    processes: dict[int, psutil.Process] = {}
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            processes |= {each.pid: each for each in (root, *root.children(recursive=True))}
    total = 0
    for process in processes.values():
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def _disk_bytes(home: Home) -> int:
    total = 0
    for path in home.local.rglob("*"):
        with suppress(OSError):
            if path.is_file() and not path.is_symlink():
                total += path.stat().st_size
    return total


def write_report(report: Report) -> None:
    """`rehearsal.json` in the home."""
    content = {
        "profile": report.profile,
        "stages": [asdict(stage) for stage in report.stages],
        "substitutions": [asdict(each) for each in report.substitutions],
    }
    atomic_write(report.home.local / FILE, json.dumps(content, indent=1))


def show_report(report: Report, console: Console) -> None:
    stages = RichTable("stage", "what ran", "time", "peak memory", "disk", box=None)
    for column in stages.columns[2:]:
        column.justify, column.no_wrap = "right", True
    for stage in report.stages:
        taken = stage.measured
        stages.add_row(
            Text(stage.name, "red" if stage.failed else ""),
            Text(f"FAILED: {stage.ran}" if stage.failed else stage.ran),
            f"{taken.seconds:.0f} s",
            f"{taken.peak_bytes / 1e9:.1f} GB",
            f"{taken.disk_bytes / 1e6:.1f} MB",
        )
    console.print(Group(Text(), stages, *_substitutions(report)))
    total = sum(stage.measured.seconds for stage in report.stages)
    state = "failed" if report.failed else "complete"
    console.print(f"\nRehearsal of {report.profile}: {state} in {total:.0f} s; {report.home.root}")
    for stage in report.stages:
        if stage.failed:  # once more, where a long table does not hide it
            console.print(Text(f"{stage.name}: {stage.ran}", "red"))


def _substitutions(report: Report) -> Iterator[RichTable | Text]:
    for kind, title in _TITLES.items():
        own = [each for each in report.substitutions if each.kind == kind]
        if own:
            grid = RichTable("setting", "in the profile", "here", box=None)
            for each in own:
                grid.add_row(*map(Text, (each.path, each.before, each.after)))
            yield Text(f"\n{title}", "bold")
            yield grid
