"""`interleave ui`: Dagster's webserver and daemon on a home."""

import os
import sys
from typing import Annotated

import typer

from .options import HomeOption, ProfileOption, enable_interrupts


def ui(
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 3000,
) -> None:
    """Serve the Dagster UI: lineage, runs, schedules and sensors."""
    from assets.core.profile import load_profile
    from warehouse import Home
    from warehouse.views import refresh_views

    from ..instance import open_instance

    enable_interrupts()
    with open_instance(Home(home), load_profile(profile).cluster):
        refresh_views(Home(home))
    environment = {**os.environ, "INTERLEAVE_PROFILE": profile, "INTERLEAVE_HOME": home}
    workspace = f"{os.environ['DAGSTER_HOME']}/workspace.yaml"
    command = [sys.executable, "-m", "dagster", "dev"]
    command += ["-w", workspace, "-h", host, "-p", str(port)]
    os.execve(sys.executable, command, environment)
