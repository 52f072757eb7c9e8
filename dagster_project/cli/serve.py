"""`interleave serve`: a profile's service on a home."""

import typer

from assets.core.profile import load_profile
from inference.generation.agent_resolver import PromotedAgentResolver
from inference.service.server import serve
from warehouse import Home


def serve_in_terminal(profile: str, root: str, host: str | None, port: int | None) -> None:
    """Serve until Ctrl-C or TERM.

    Args:
        host, port: None: the profile's.

    Raises:
        FoundryError: it cannot be served.
    """
    settings, home = load_profile(profile), Home(root)
    given = {"host": host, "port": port}
    chosen = settings.service.model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    casting = PromotedAgentResolver(settings, home, chosen.agents)
    serve(
        home,
        casting,
        settings.loop,
        settings.limits,
        chosen,
        lambda line: typer.echo(line, err=True),
    )
