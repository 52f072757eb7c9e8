"""`interleave agents serve`: a server in the foreground, and how a profile asks it."""

import signal
from contextlib import ExitStack

from rich.console import Console
from rich.markup import escape

from training.serving import ServableAgent, ServerSettings, profile_lines, serve
from warehouse import Home

_SHOWN = 100


def serve_in_terminal(model: ServableAgent, settings: ServerSettings, home: Home) -> None:
    """Serve until Ctrl-C or TERM. Standard output gets the profile's lines and nothing else.

    Raises:
        FoundryError: it cannot be served, or ended by itself.
    """
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        _serve(model, settings, home, console)
    except KeyboardInterrupt:
        console.print(f"{model.name} is not served any more")


def _serve(model: ServableAgent, settings: ServerSettings, home: Home, console: Console) -> None:
    title = f"Starting {model.name}"
    with ExitStack() as stack:
        with console.status(title) as status:

            def starting(line: str) -> None:
                status.update(f"{title} [dim]{escape(line[:_SHOWN])}[/]")

            server = stack.enter_context(serve(model, settings, home, console.print, starting))
        console.print(f"{model.name} is served at {server.url} (log: {server.log})")
        console.print("A profile asks it with these lines, and `openai` under its roles:\n")
        print(profile_lines(model, settings), flush=True)
        server.wait()
