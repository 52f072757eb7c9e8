"""The `interleave` command: thin doors to the lineage and the warehouse."""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..schemas import FoundryError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Interleave Foundry: from a taxonomy to agents that tell stories in pictures and text.",
)

ProfileOption = Annotated[
    str,
    typer.Option(envvar="INTERLEAVE_PROFILE", help="Profile name, or path of a YAML file."),
]
OutputFormat = Literal["table", "csv", "json", "parquet"]
HomeOption = Annotated[
    str, typer.Option(envvar="INTERLEAVE_HOME", help="Folder or fsspec URL of the lake.")
]


@app.command()
def run(
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    size: Annotated[str, typer.Option(help="How many shards: a size of the profile.")] = "demo",
    select: Annotated[
        str, typer.Option(help="Assets to bring up to date, comma-separated; default all.")
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Shards told at the same time.")] = os.cpu_count()
    or 1,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also what is up to date; finished model calls are reused."),
    ] = False,
) -> None:
    """Bring the lineage up to date; what is already there is reused."""
    from .terminal import run_in_terminal

    _hear_signals()
    names = [name.strip() for name in select.split(",") if name.strip()]
    run_in_terminal(profile, home, size, names, jobs, force)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="A DuckDB query over the tables of the lake.")],
    home: HomeOption = ".interleave",
    format: Annotated[OutputFormat, typer.Option(help="How to print the result.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead.")] = None,
) -> None:
    """Query the lake, read-only, whatever else is being written.

    Example: `interleave sql "select status, count(*) from trajectories group by all"`
    """
    from ..warehouse import Home
    from ..warehouse.sql import run_sql

    width = shutil.get_terminal_size((120, 40)).columns
    sys.stdout.buffer.write(run_sql(Home(home), query, format, out, width))


@app.command()
def ui(
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 3000,
) -> None:
    """Open Dagster: the lineage, its runs, schedules and sensors."""
    from ..warehouse import Home, refresh_views
    from .instance import open_instance

    with open_instance(Home(home)):
        refresh_views(Home(home))
    environment = {**os.environ, "INTERLEAVE_PROFILE": profile, "INTERLEAVE_HOME": home}
    where = ["-w", f"{os.environ['DAGSTER_HOME']}/workspace.yaml", "-h", host, "-p", str(port)]
    command = [sys.executable, "-m", "dagster", "dev", *where]
    os.execve(sys.executable, command, environment)


@app.command()
def checkpoints(
    home: HomeOption = ".interleave",
    name: Annotated[str, typer.Option(help="Only versions of this checkpoint.")] = "",
) -> None:
    """List the trained models: parents, status, main metrics."""
    from .checkpoint_list import print_checkpoints

    print_checkpoints(home, name or None)


NameArgument = Annotated[str, typer.Argument(help="Name, as `interleave checkpoints` lists it.")]


@app.command()
def promote(
    name: NameArgument,
    version: Annotated[str, typer.Argument(help="Version, likewise.")],
    home: HomeOption = ".interleave",
) -> None:
    """Put a version of a checkpoint in use, whatever evaluation says of it."""
    from ..training.checkpoints import Checkpoints
    from ..warehouse import Home

    row = Checkpoints(Home(home)).promote(name, version, "by command")
    typer.echo(f"{row.name} {row.version} is in use")


@app.command()
def rollback(name: NameArgument, home: HomeOption = ".interleave") -> None:
    """Put the version in use again that was before this one."""
    from ..training.checkpoints import Checkpoints
    from ..warehouse import Home

    row = Checkpoints(Home(home)).roll_back(name, "by command")
    typer.echo(f"{row.name} {row.version} is in use again")


def _hear_signals() -> None:
    """Obey TERM also where a shell had us ignore Ctrl-C, as it has commands in the background.

    Dagster treats the one signal as the other.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> None:
    """Run the command; a user's mistake ends in one line, a bug in a traceback."""
    try:
        app()
    except FoundryError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
