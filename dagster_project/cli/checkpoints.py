"""`interleave checkpoints`, `promote` and `rollback`: the registry of trained models."""

from typing import TYPE_CHECKING, Annotated

import typer

from .options import HomeOption

if TYPE_CHECKING:
    from schemas.training import CheckpointRow
    from warehouse import Home

_METRICS = ("loss", "reward", "plan_correct", "verdict_accuracy_true", "verdict_accuracy_false")
_COLOURS = {"promoted": "green", "candidate": "yellow", "rejected": "red"}
_COLUMNS = ("name", "version", "parent", "status", "metrics", "made")

NameArgument = Annotated[str, typer.Argument(help="Name listed by `interleave checkpoints`.")]


def checkpoints(
    home: HomeOption = ".interleave",
    name: Annotated[str, typer.Option(help="Only versions of this checkpoint.")] = "",
) -> None:
    """List trained models: parent, status, main metrics."""
    from rich.console import Console
    from rich.table import Table

    from training.registry import CheckpointRegistry
    from warehouse import Home

    lake, console = Home(home), Console()
    rows = CheckpointRegistry(lake).rows(name or None)
    if not rows:
        console.print(f"No checkpoints{f' of {name}' if name else ''} in {lake.root} yet.")
        return
    grid = Table(*_COLUMNS, box=None, header_style="bold")
    for row in rows:
        status = f"[{_COLOURS[row.status]}]{row.status}[/]"
        made = f"{row.created_at:%Y-%m-%d %H:%M}"
        grid.add_row(row.name, row.version, row.parent or "", status, _metrics(lake, row), made)
    console.print(grid)


def promote(
    name: NameArgument,
    version: Annotated[str, typer.Argument(help="Version listed by `interleave checkpoints`.")],
    home: HomeOption = ".interleave",
) -> None:
    """Use a version of a checkpoint, regardless of its evaluation."""
    from training.registry import CheckpointRegistry
    from warehouse import Home

    row = CheckpointRegistry(Home(home)).promote(name, version, "by command")
    typer.echo(f"{row.name} {row.version} is in use")


def rollback(name: NameArgument, home: HomeOption = ".interleave") -> None:
    """Use the version again that was in use before the current one."""
    from training.registry import CheckpointRegistry
    from warehouse import Home

    row = CheckpointRegistry(Home(home)).roll_back(name, "by command")
    typer.echo(f"{row.name} {row.version} is in use again")


def _metrics(home: "Home", row: "CheckpointRow") -> str:
    """The main metrics of training and of the newest evaluation."""
    import orjson

    values = {**orjson.loads(row.metrics), **_evaluation(home, f"{row.name}@{row.version}")}
    return ", ".join(f"{name} {values[name]:.3g}" for name in _METRICS if name in values)


def _evaluation(home: "Home", checkpoint: str) -> dict[str, float]:
    """Means of a checkpoint's own metrics over the development items."""
    import pyarrow.compute as pc

    from schemas.training import EVALUATIONS

    agent = pc.field("planner" if checkpoint.startswith("planner") else "critic")
    heldout = pc.ends_with(pc.field("benchmark"), "-heldout-dev")
    rows = home.lake.read(EVALUATIONS, where=pc.ends_with(agent, checkpoint) & heldout)
    means = rows.group_by("metric").aggregate([("value", "mean")])
    return dict(zip(means["metric"].to_pylist(), means["value_mean"].to_pylist(), strict=True))
