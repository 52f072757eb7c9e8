"""The table that a rehearsal ends with, and the same as JSON."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from warehouse.atomic import atomic_write

from .stages import Report
from .substitutions import Kind

FILE = "rehearsal.json"
_TITLES: dict[Kind, str] = {
    "model": "Substituted: models and services",
    "size": "Made smaller",
    "gpu": "Only a GPU (or more machines) can show",
}


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
