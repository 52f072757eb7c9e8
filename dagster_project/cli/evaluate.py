"""`interleave evaluate`: benchmarks of the field, and embedded ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import HomeOption, ProfileOption, enable_interrupts

if TYPE_CHECKING:
    from rich.console import Console

    from assets.core.foundry import FoundryResource
    from schemas.benchmarks import BenchmarkResultRow

    from ..benchmarks import RunEstimate


NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Benchmarks; default: those of the profile. `list` shows all."),
]
SourceOption = Annotated[
    str | None,
    typer.Option(help="Folder of the official files, or id of a data set on the Hugging Face Hub."),
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, help="Number of items, spread evenly over all groups.")
]
JudgeOption = Annotated[
    str | None, typer.Option(help="Judge as BACKEND/MODEL; default: the profile's.")
]
AnswersOption = Annotated[
    Path | None, typer.Option(help="Answers of another system, in the benchmark's official layout.")
]
EstimateOption = Annotated[
    bool, typer.Option("--estimate", help="Only print the expected calls and cost; run nothing.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Run again what is up to date; finished calls are reused.")
]


def evaluate(
    benchmarks: NamesArgument = None,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    source: SourceOption = None,
    limit: LimitOption = None,
    judge: JudgeOption = None,
    answers: AnswersOption = None,
    system: Annotated[str | None, typer.Option(help="Name of the other system.")] = None,
    seed: Annotated[int | None, typer.Option(help="For generated items.")] = None,
    difficulty: Annotated[int | None, typer.Option(min=1, help="For generated items.")] = None,
    estimate: EstimateOption = False,
    force: ForceOption = False,
) -> None:
    """Evaluate the agents on benchmarks, with a judge and the official metrics.

    Example: `interleave evaluate sketch-interleaved sketch-edits`
    """
    from assets.benchmarks.catalogue import names
    from assets.core.foundry import FoundryResource

    from ..benchmarks import with_runs

    if benchmarks == ["list"]:
        typer.echo("\n".join(names()))
        return
    enable_interrupts()
    changes = {"source": source, "limit": limit, "seed": seed, "difficulty": difficulty}
    own = FoundryResource(profile=profile, root=home)
    foundry = with_runs(own, benchmarks or [], judge, answers, system, **changes)
    _evaluate(foundry, estimate, force)


def _evaluate(foundry: "FoundryResource", only_estimate: bool, force: bool) -> None:
    from rich.console import Console

    from ..benchmarks import estimates, evaluate_benchmarks
    from ..instance import open_instance
    from .run_screen import terminal_progress

    console = Console()
    for each in estimates(foundry):
        console.print(_estimate_line(each), soft_wrap=True, highlight=False)
    if only_estimate:
        return
    with (
        open_instance(foundry.home, foundry.settings.cluster) as instance,
        terminal_progress(console),
    ):
        results = evaluate_benchmarks(foundry, instance, console.print, force)
    _show(console, results)


def _estimate_line(run: "RunEstimate") -> str:
    asked = f"at least {run.questions:,} questions to {run.judge}" if run.questions else run.judge
    costs = ", ".join(
        f"{role.role} {role.calls:,} calls, "
        + ("no price of it is known" if role.usd is None else f"about {role.usd:,.2f} USD")
        + ("" if role.measured else " (assumed)")
        for role in run.roles
        if role.usd != 0
    )
    return f"{run.run}: {run.items} items; {asked}" + (f"; {costs}" if costs else "")


def _show(console: "Console", rows: "list[BenchmarkResultRow]") -> None:
    """A table for every run."""
    from itertools import groupby

    from rich.table import Table

    from assets.benchmarks.results import number_cells

    for (benchmark, system, judge), own in groupby(
        rows, key=lambda row: (row.benchmark, row.system, row.judge)
    ):
        first, *others = own
        table = Table("number", "value", f"{first.confidence:.0%} interval", box=None)
        for row in (first, *others):
            table.add_row(*number_cells(row), style="bold" if row.headline else "")
        console.print(f"\n[bold]{benchmark}[/] by {system}, judged by {judge}", highlight=False)
        console.print(f"{first.items} of {first.of_items} items, {first.unscored:.1%} unscored")
        console.print(table)
