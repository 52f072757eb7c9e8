"""`interleave sql`: a read-only query over the lake."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Annotated, Literal

import typer

from .options import HomeOption

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
