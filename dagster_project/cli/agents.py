"""`interleave agents serve`: a trained agent behind an OpenAI-compatible endpoint."""

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from .options import HomeOption

if TYPE_CHECKING:
    from inference.servers.settings import AgentServer
    from inference.servers.vllm import Address, ServableAgent
    from warehouse import Home

_LINE_LENGTH = 100  # of vLLM's log, in the moving status line

app = typer.Typer(no_args_is_help=True, help="Trained planners and critics.")


@app.command()
def serve(
    checkpoint: Annotated[
        str,
        typer.Argument(help="Name listed by `interleave checkpoints`, folder, or Hugging Face id."),
    ],
    flags: Annotated[
        list[str] | None, typer.Argument(help="After `--`: further flags of `vllm serve`.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(
            help="Version of a named checkpoint; default: the promoted one, else the newest."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="Number of GPUs; 0: CPU. Default: 1 if there are any.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Maximum tokens of a prompt and its answer.")
    ] = None,
    home: HomeOption = ".interleave",
) -> None:
    """Serve a planner or critic with vLLM, which is installed on first use, until Ctrl-C."""
    from inference import environments
    from inference.servers.settings import AgentServer
    from inference.servers.vllm import Address, find_model
    from warehouse import Home

    model = find_model(checkpoint, Home(home), version)
    gpus = min(1, environments.gpus()) if gpus is None else gpus
    chosen = {"gpus": gpus, "max_length": max_length, "flags": tuple(flags or ())}
    settings = AgentServer.model_validate({"kind": "agents", "model": model.name, **chosen})
    serve_in_terminal(model, settings, Address(host, port), Home(home))


def serve_in_terminal(
    model: "ServableAgent", settings: "AgentServer", address: "Address", home: "Home"
) -> None:
    """Serve until SIGINT or SIGTERM; standard output gets only the profile lines to copy.
    FoundryError: the model cannot be served, or the server ended."""
    from rich.console import Console
    from rich.markup import escape

    from inference.servers.vllm import profile_lines, serve

    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    title = f"Starting {model.name}"
    try:
        with ExitStack() as stack:
            with console.status(title) as status:

                def show(line: str) -> None:
                    status.update(f"{title} [dim]{escape(line[:_LINE_LENGTH])}[/]")

                server = stack.enter_context(
                    serve(model, settings, address, home, console.print, show)
                )
            console.print(f"{model.name} is served at {server.url} (log: {server.log})")
            console.print("A profile uses it with these lines, and `openai` under its roles:\n")
            print(profile_lines(model, settings, address), flush=True)
            server.wait()
    except KeyboardInterrupt:
        console.print(f"{model.name} is no longer served")
