"""`interleave sql` and `costs`: a read-only query over the lake, and sums of what calls cost."""

import shutil
import sys
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from itertools import compress
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .options import HomeOption, ProfileOption

if TYPE_CHECKING:
    from inference.backends.providers.budget import Spending
    from inference.backends.providers.settings import BudgetSettings
    from warehouse.costs import Costs, CostTable

_MOST = 50
_MISSING = "-"
_COLUMNS = (
    *("calls", "cached", "failed", "retries", "tokens in", "tokens out", "hours", "GPU hours"),
    *("USD", "estimated"),
)


OutputFormat = Literal["table", "csv", "json", "parquet"]


def sql(
    query: Annotated[
        str, typer.Argument(help="A DuckDB query over tables and views of the lake.")
    ] = "",
    home: HomeOption = ".interleave",
    format: Annotated[OutputFormat, typer.Option(help="Output format.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Output file; default: the terminal.")] = None,
    other_files: Annotated[
        bool, typer.Option("--other-files", help="The query may read files outside the lake.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.01, help="Seconds after which the query is stopped.")
    ] = 300,
    views: Annotated[
        bool, typer.Option("--views", help="List the views, with an example each, and stop.")
    ] = False,
) -> None:
    """Run one query over the lake, read-only, also while other commands write to it.

    Example: `interleave sql "select status, count(*) from trajectories group by all"`
    """
    from warehouse import Home
    from warehouse.sql import run_sql

    if views:
        typer.echo("\n\n".join(_described_views()))
        return
    if not query:
        raise typer.BadParameter("write a query, or --views", param_hint="QUERY")

    width = shutil.get_terminal_size((120, 40)).columns
    sys.stdout.buffer.write(run_sql(Home(home), query, format, out, width, other_files, timeout))


def _described_views() -> Iterator[str]:
    """Each view's name, a line about its rows, and its example."""
    from schemas import VIEWS

    for view in VIEWS.values():
        yield f"{view.name}: {view.description}\n\n{indent(view.example, '    ')}"


class By(StrEnum):
    """Columns to sum by."""

    shard = "shard"
    model = "model"
    day = "day"
    asset = "asset"


def costs(
    by: Annotated[By, typer.Option(help="Sums by this.")] = By.model,
    since: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="First day, UTC; default: all.")
    ] = None,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
) -> None:
    """Show cost, tokens, calls, failures and GPU hours, and what is left of the budget.

    A dash is what was not measured; `+` marks sums from which some calls are missing. `interleave
    sql` has the same numbers in the view `costs`, the studio a page (docs/costs.md).
    """
    from assets.core.profile import load_profile
    from inference.backends.providers.budget import SpendingFile
    from warehouse import Home
    from warehouse.costs import cost_report

    budget, lake = load_profile(profile).budget, Home(home)
    report = cost_report(lake, [by.value], since.date() if since else None, _MOST)
    console = Console(highlight=False)
    if not report.tables[by.value].groups:
        console.print("no calls and no trainings yet: `interleave run` makes some")
        return
    console.print(_grid(by.value, report.tables[by.value], report.total))
    if budget:
        console.print(_budget_line(budget, SpendingFile.of(lake).read()))


def _grid(by: str, table: "CostTable", total: "Costs") -> Table:
    """The groups and their sum; columns of which nothing was measured are left out."""

    rows = [(group.name or "none", _cells(group)) for group in table.groups]
    rows.append(("all", _cells(total)))
    measured = [any(cells[n] != _MISSING for _, cells in rows) for n in range(len(_COLUMNS))]
    grid = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    grid.add_column(by, no_wrap=True)
    for name in compress(_COLUMNS, measured):
        grid.add_column(name, justify="right", overflow="fold")
    for name, cells in rows[:-1]:
        grid.add_row(Text(name), *compress(cells, measured))
    if more := table.total - len(table.groups):
        grid.add_row(f"and {more:,} more")
    grid.add_row("all", *compress(rows[-1][1], measured), style="bold")
    return grid


def _cells(costs: "Costs") -> list[str]:
    uncounted, unpriced = bool(costs.uncounted), bool(costs.unpriced)
    return [
        *(_number(count) for count in (costs.calls, costs.cached, costs.failed, costs.retries)),
        _number(costs.input_tokens, incomplete=uncounted),
        _number(costs.output_tokens, incomplete=uncounted),
        _number(costs.seconds and costs.seconds / 3600, 2),
        _number(costs.gpu_hours, 2),
        _number(costs.cost_usd, 2, incomplete=unpriced),
        _number(costs.estimated_usd, 2),
    ]


def _number(value: float | None, digits: int = 0, incomplete: bool = False) -> str:
    if value is None:
        return _MISSING
    return f"{value:,.{digits}f}{'+' if incomplete else ''}"


def _budget_line(budget: "BudgetSettings", spending: "Spending | None") -> str:
    spent, reserved = (spending.spent, spending.reserved) if spending else (0.0, 0.0)
    under_way = f", {reserved:,.2f} more reserved by calls under way" if reserved else ""
    return f"\nbudget: {spent:,.2f} of {budget.usd:,.2f} USD spent{under_way}"
