"""The table that `interleave checkpoints` prints."""

from collections.abc import Sequence

import orjson
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table as RichTable

from schemas.training import EVALUATIONS, CheckpointRow
from training.registry import CheckpointRegistry
from warehouse import Home

_MAIN = ("loss", "reward", "plan_correct", "verdict_accuracy_true", "verdict_accuracy_false")
_COLOURS = {"promoted": "green", "candidate": "yellow", "rejected": "red"}


def print_checkpoints(root: str, name: str | None) -> None:
    """All versions, or those of one name, oldest first."""
    home = Home(root)
    rows = CheckpointRegistry(home).rows(name)
    console = Console()
    if not rows:
        console.print(f"No checkpoints{f' of {name}' if name else ''} in {home.root} yet.")
        return
    console.print(_grid(home, rows))


def _grid(home: Home, rows: Sequence[CheckpointRow]) -> RichTable:
    grid = RichTable(
        "name", "version", "parent", "status", "metrics", "made", box=None, header_style="bold"
    )
    for row in rows:
        grid.add_row(
            row.name,
            row.version,
            row.parent or "",
            f"[{_COLOURS[row.status]}]{row.status}[/]",
            _metrics(home, row),
            f"{row.created_at:%Y-%m-%d %H:%M}",
        )
    return grid


def _metrics(home: Home, row: CheckpointRow) -> str:
    """The main ones, of training and of the newest evaluation."""
    values = {**orjson.loads(row.metrics), **_evaluated(home, f"{row.name}@{row.version}")}
    return ", ".join(f"{metric} {values[metric]:.3g}" for metric in _MAIN if metric in values)


def _evaluated(home: Home, checkpoint: str) -> dict[str, float]:
    """Means on the held-out set of a checkpoint's own metrics."""
    player = "planner" if checkpoint.startswith("planner") else "critic"
    played = pc.ends_with(pc.field(player), checkpoint)
    heldout = pc.field("benchmark") == "sketchbook-heldout"
    rows = home.lake.read(EVALUATIONS, where=played & heldout)
    means = rows.group_by("metric").aggregate([("value", "mean")])
    return dict(zip(means["metric"].to_pylist(), means["value_mean"].to_pylist(), strict=True))
