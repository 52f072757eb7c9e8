"""`interleave serve`: a profile's service on a home."""

from functools import partial
from typing import Annotated

import typer

from .options import HomeOption, PlannerOption, ProfileOption, named_agents


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
    planner: PlannerOption = None,
    critic: Annotated[
        str | None, typer.Option(help="Critic, likewise; requests may name others.")
    ] = None,
) -> None:
    """Serve the studio page and OpenAI's Responses and chat APIs, until Ctrl-C.

    More settings: section `service` of the profile.
    """
    from assets.benchmarks.report import render_runs
    from assets.core.profile import load_profile
    from inference.generation.agent_resolver import AgentResolver
    from inference.service import app
    from warehouse import Home

    settings, lake = load_profile(profile), Home(home)
    changes = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    service = settings.service.model_copy(update=changes)
    resolver = AgentResolver(settings, lake, service.agents, named_agents(planner, critic))
    announce = partial(typer.echo, err=True)
    render = partial(render_runs, lake)
    options = (settings.loop, settings.limits, service, announce, render, settings.budget)
    app.serve(lake, resolver, *options)
