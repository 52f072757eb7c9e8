"""Commands that serve: `interleave ui`, `serve`, `agents serve`, `generator`, `env`, and
`servers`."""

import os
import signal
import sys
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from schemas import FoundryError

from .options import HomeOption, PlannerOption, ProfileOption, enable_interrupts, named_agents

if TYPE_CHECKING:
    from inference.backends.diffusers.registry import GeneratorModel
    from inference.servers.instance import ServerInstance
    from inference.servers.settings import AgentServer
    from inference.servers.vllm import Address, ServableAgent
    from warehouse import Home

_LINE_LENGTH = 100  # of vLLM's log, in the moving status line


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


def servers(
    stop: Annotated[
        str | None, typer.Option(help="Stop the servers with this name, even if they are in use.")
    ] = None,
    home: HomeOption = ".interleave",
) -> None:
    """List the model servers that run, or stop some; they start on first use (docs/gpus.md)."""
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


agents_app = typer.Typer(no_args_is_help=True, help="Trained planners and critics.")


@agents_app.command("serve")
def serve_agent(
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


Device = Literal["auto", "cpu", "cuda"]

generators_app = typer.Typer(no_args_is_help=True, help="Image generators.")


@generators_app.command("list")
def list_generators(profile: ProfileOption = "sketch") -> None:
    """List image models: what each can do, and whether it can be used here."""
    from assets.core.profile import load_profile
    from inference.backends.diffusers.backend import DiffusersSettings
    from inference.backends.diffusers.registry import load_registry, missing_requirements

    models = load_registry(load_profile(profile).section(DiffusersSettings).registry).models
    grid = Table("name", "model", "can", "backend", "usable here", box=None, header_style="bold")
    for name, model in models.items():
        reasons = ", ".join(missing_requirements(model))
        usable = f"[yellow]no: {reasons}[/]" if reasons else "[green]yes[/]"
        grid.add_row(name, _weights(model), ", ".join(model.can), model.backend, usable)
    console = Console()
    console.print(grid)
    for name, model in models.items():
        if model.note:
            console.print(f"[bold]{name}[/]: {model.note}", highlight=False)


def _weights(model: "GeneratorModel") -> str:
    revision = f" {model.revision_label}" if model.revision else ""
    lora = " + LoRA" if model.lora else ""
    return f"{model.model}{revision}{lora}"


@generators_app.command("serve")
def serve_generator(
    model: Annotated[
        str, typer.Argument(help="Name listed by `interleave generator list`, or `sketch`.")
    ],
    registry: Annotated[
        Path | None, typer.Option(help="YAML file with further models, as in profiles.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Replicas of the model; default: one per GPU.")
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; beyond loopback INTERLEAVE_IMAGES_KEY is needed."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8010,
    batch: Annotated[int, typer.Option(min=1, help="Maximum images per batch.")] = 4,
    queue: Annotated[
        int, typer.Option(min=0, help="Maximum images in the queue; further requests get 429.")
    ] = 64,
    device: Annotated[
        Device, typer.Option(help="auto: one GPU per replica, where there are any.")
    ] = "auto",
    ray: Annotated[
        str | None,
        typer.Option(
            help="Address of a running Ray cluster, as seen from one of its nodes; default: none."
        ),
    ] = None,
) -> None:
    """Serve a model over OpenAI's images API, with replicas on Ray Serve.

    Example: `interleave generator serve sketch`
    """
    from inference.images_server.app import serve_images
    from inference.images_server.models import ImagesServerSettings

    settings = ImagesServerSettings(
        host=host, port=port, replicas=replicas, batch=batch, queue=queue, device=device, ray=ray
    )
    serve_images(model, registry, settings, lambda line: typer.echo(line, err=True))


Episode = Literal["step", "trajectory", "plan"]

environments_app = typer.Typer(no_args_is_help=True, help="The loop as an environment.")


@environments_app.command("serve")
def serve_environment(
    profile: ProfileOption = "sketch",
    episode: Annotated[
        Episode,
        typer.Option(
            help="step: the critic judges one image; story: every image of a story; plan: the "
            "planner answers a request."
        ),
    ] = "step",
    dev: Annotated[
        bool, typer.Option("--dev", help="Held-out requests, to choose settings by.")
    ] = False,
    home: HomeOption = ".interleave",
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; beyond loopback INTERLEAVE_ENV_KEYS is needed."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")
    ] = 8040,
    sessions: Annotated[
        int, typer.Option(min=1, help="Sessions at once; a further one is refused.")
    ] = 256,
) -> None:
    """Serve episodes over OpenEnv's protocol, to other trainers (docs/guides/environment.md)."""
    from assets.core.profile import load_profile
    from training.environment.openenv import serve
    from warehouse import Home

    from ..environment import open_environment

    with open_environment(load_profile(profile), Home(home), episode, dev) as environment:
        serve(environment, host, port, sessions, partial(typer.echo, err=True))
