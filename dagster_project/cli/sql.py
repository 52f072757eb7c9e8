"""`interleave sql`: a read-only query over the lake."""

import shutil
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import HomeOption

OutputFormat = Literal["table", "csv", "json", "parquet"]


def sql(
    query: Annotated[str, typer.Argument(help="A DuckDB query over the tables of the lake.")],
    home: HomeOption = ".interleave",
    format: Annotated[OutputFormat, typer.Option(help="Output format.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Output file; default: the terminal.")] = None,
    other_files: Annotated[
        bool, typer.Option("--other-files", help="The query may read files outside the lake.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.01, help="Seconds after which the query is stopped.")
    ] = 300,
) -> None:
    """Run one query over the lake, read-only, also while other commands write to it.

    Example: `interleave sql "select status, count(*) from trajectories group by all"`
    """
    from warehouse import Home
    from warehouse.sql import run_sql

    width = shutil.get_terminal_size((120, 40)).columns
    sys.stdout.buffer.write(run_sql(Home(home), query, format, out, width, other_files, timeout))
