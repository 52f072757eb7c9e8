"""The `interleave` command. Its larger commands are files beside this one; what is slow to import
is imported when a command runs."""

import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from schemas import FoundryError

from . import agents, checkpoints, generate, generators
from .options import HomeOption, ProfileOption, enable_interrupts

OutputFormat = Literal["table", "csv", "json", "parquet"]


def run(
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    size: Annotated[
        str,
        typer.Option(
            help="How many shards: a size of the profile; default: that of the lake, demo at first."
        ),
    ] = "",
    select: Annotated[
        str, typer.Option(help="Assets to bring up to date, comma-separated; default all.")
    ] = "",
    jobs: Annotated[
        int, typer.Option(min=1, help="Shards processed at the same time.")
    ] = os.cpu_count() or 1,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also what is up to date; finished model calls are reused."),
    ] = False,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate", help="Only say what the trajectories would take: calls, cost, ..."
        ),
    ] = False,
) -> None:
    """Bring the lineage up to date; what is already there is reused."""
    from .run_screen import estimate_in_terminal, run_in_terminal

    if estimate:
        estimate_in_terminal(profile, home, size)
        return
    enable_interrupts()
    names = [name.strip() for name in select.split(",") if name.strip()]
    run_in_terminal(profile, home, size, names, jobs, force)


def sql(
    query: Annotated[str, typer.Argument(help="A DuckDB query over the tables of the lake.")],
    home: HomeOption = ".interleave",
    format: Annotated[OutputFormat, typer.Option(help="How to print the result.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead.")] = None,
) -> None:
    """Query the lake, read-only, whatever else is being written.

    Example: `interleave sql "select status, count(*) from trajectories group by all"`
    """
    from warehouse import Home
    from warehouse.sql import run_sql

    width = shutil.get_terminal_size((120, 40)).columns
    sys.stdout.buffer.write(run_sql(Home(home), query, format, out, width))


def ui(
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 3000,
) -> None:
    """Open Dagster: the lineage, its runs, schedules and sensors."""
    from assets.core.profile import load_profile
    from warehouse import Home
    from warehouse.views import refresh_views

    from ..instance import open_instance

    with open_instance(Home(home), load_profile(profile).cluster):
        refresh_views(Home(home))
    environment = {**os.environ, "INTERLEAVE_PROFILE": profile, "INTERLEAVE_HOME": home}
    workspace = f"{os.environ['DAGSTER_HOME']}/workspace.yaml"
    command = [sys.executable, "-m", "dagster", "dev"]
    command += ["-w", workspace, "-h", host, "-p", str(port)]
    os.execve(sys.executable, command, environment)


def serve(
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to listen on; beyond loopback INTERLEAVE_SERVICE_KEYS is needed."
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")
    ] = None,
) -> None:
    """Serve stories over OpenAI's Responses and chat APIs, until Ctrl-C.

    What else may be set is in the profile's section `service`.
    """
    from assets.core.profile import load_profile
    from inference.generation.agent_resolver import AgentResolver
    from inference.service import app as service_app
    from warehouse import Home

    settings, lake = load_profile(profile), Home(home)
    changes = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    service = settings.service.model_copy(update=changes)
    resolver = AgentResolver(settings, lake, service.agents)
    announce = partial(typer.echo, err=True)
    service_app.serve(lake, resolver, settings.loop, settings.limits, service, announce)


def doctor(profile: ProfileOption = "sketch", home: HomeOption = ".interleave") -> None:
    """Say what a profile needs and does not find here; exit status 1 if anything is missing."""
    from ..doctor import report

    raise typer.Exit(0 if report(profile, home) else 1)


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Interleave Foundry: from a taxonomy to agents that tell stories in pictures and text.",
)
for command in (
    run,
    generate.generate,
    sql,
    ui,
    serve,
    doctor,
    checkpoints.checkpoints,
    checkpoints.promote,
    checkpoints.rollback,
):
    app.command()(command)
app.add_typer(generators.app, name="generator")
app.add_typer(agents.app, name="agents")


def main() -> None:
    """Run the command; a user's mistake ends in one line, a bug in a traceback."""
    try:
        app()
    except FoundryError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
