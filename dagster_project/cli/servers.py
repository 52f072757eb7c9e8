"""`interleave servers`: the model servers of a home, which its processes start and share."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from schemas import FoundryError

from .options import HomeOption

if TYPE_CHECKING:
    from inference.servers.instance import ServerInstance


def servers(
    stop: Annotated[
        str | None, typer.Option(help="Stop the servers with this name, even if they are in use.")
    ] = None,
    home: HomeOption = ".interleave",
) -> None:
    """List the model servers that run, or stop some; they start on first use (docs/gpus.md)."""
    from rich.console import Console
    from rich.table import Table

    from inference.servers.instance import home_servers
    from warehouse import Home

    running = [(server, row) for server in home_servers(Home(home)) if (row := _row(server))]
    stopped = [server for server, row in running if row[0] == stop]
    if stop and not stopped:
        raise FoundryError(f"no server {stop} runs in {home}: `interleave servers` lists them")
    for server in stopped:
        server.stop()
    grid = Table("name", "model", "GPUs", "state", "address", "since", "note", box=None)
    for _, row in running:
        grid.add_row(*row)
    console = Console(highlight=False, soft_wrap=True)
    console.print(grid if running else "No servers are running; the first call starts one.")
    if stop:
        console.print(f"Stopping: {stop}")


def _row(server: "ServerInstance") -> tuple[str, ...] | None:
    """None: the server does not run, and its last end was no failure."""
    spec, state = server.spec, server.state()
    count, ray = len(spec.settings.gpus), spec.settings.ray
    devices = f"{count} of Ray" if ray else ", ".join(map(str, spec.settings.gpus))
    served = spec.name, spec.model, devices if count else "CPU"
    if state is None:
        note = f"until a node has {count} free GPUs"
        return (*served, "queued", "", "", note) if server.host.is_queued() else None
    since = f"{datetime.fromtimestamp(state.since):%d %b %H:%M:%S}"
    return *served, state.state, state.url or "", since, state.note
