"""The `interleave` command: thin doors to the lineage and the warehouse."""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from schemas import FoundryError
from schemas.trajectories import OnExhausted

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Interleave Foundry: from a taxonomy to agents that tell stories in pictures and text.",
)

generator = typer.Typer(no_args_is_help=True, help="The generators that draw the pictures.")
app.add_typer(generator, name="generator")
agents = typer.Typer(no_args_is_help=True, help="The trained planners and critics.")
app.add_typer(agents, name="agents")

ProfileOption = Annotated[
    str,
    typer.Option(envvar="INTERLEAVE_PROFILE", help="Profile name, or path of a YAML file."),
]
OutputFormat = Literal["table", "csv", "json", "parquet"]
Device = Literal["auto", "cpu", "cuda"]
CriticName = Literal["rl", "sft"]
Conditioning = Literal["last", "all"]
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
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Only say what the stories would take: calls, cost, ..."),
    ] = False,
) -> None:
    """Bring the lineage up to date; what is already there is reused."""
    from .run import estimate_in_terminal, run_in_terminal

    if estimate:
        estimate_in_terminal(profile, home, size)
        return

    _hear_signals()
    names = [name.strip() for name in select.split(",") if name.strip()]
    run_in_terminal(profile, home, size, names, jobs, force)


@app.command()
def generate(
    text: Annotated[
        str, typer.Argument(help="What to tell; `<image>` may stand for the given pictures.")
    ],
    image: Annotated[
        list[Path] | None,
        typer.Option(help="A picture to go on from or to describe; may be given several times."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the story goes: a file .html, .md or .zip. Default: a new story.html here."
        ),
    ] = None,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    critic: Annotated[
        CriticName | None,
        typer.Option(help="Checkpoint that judges, by its training; default: the one in use."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Other pictures of the same request.")] = None,
    t_max: Annotated[int | None, typer.Option(help="Attempts allowed for a step.")] = None,
    on_exhausted: Annotated[
        OnExhausted | None,
        typer.Option(help="When none is accepted: keep the last or the best one, or stop."),
    ] = None,
    conditioning: Annotated[
        Conditioning | None,
        typer.Option(help="What the generator is shown: the last picture, or all of the story."),
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Pictures drawn for each prompt; the first good one counts.")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="A plan with more steps is refused.")
    ] = None,
    draw_ahead: Annotated[
        bool | None,
        typer.Option(help="Draw the next step while the critic still looks at this one."),
    ] = None,
) -> None:
    """Tell one story, and keep it as a file.

    What a profile says in section loop holds where an option is left out.

    Example: `interleave generate "How to build a snowman" --out snowman.html`
    """
    from .generate import GenerateCommand, generate_in_terminal

    _hear_signals()
    changes = {
        "seed": seed,
        "t_max": t_max,
        "on_exhausted": on_exhausted,
        "conditioning": conditioning,
        "candidates": candidates,
        "max_steps": max_steps,
        "draw_ahead": draw_ahead,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    raise typer.Exit(
        generate_in_terminal(GenerateCommand(text, image or [], given, critic), profile, home, out)
    )


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
    from warehouse import Home
    from warehouse.sql import run_sql

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
    from assets.core.profile import load_profile
    from warehouse import Home, refresh_views

    from ..instance import open_instance

    with open_instance(Home(home), load_profile(profile).cluster):
        refresh_views(Home(home))
    environment = {**os.environ, "INTERLEAVE_PROFILE": profile, "INTERLEAVE_HOME": home}
    where = ["-w", f"{os.environ['DAGSTER_HOME']}/workspace.yaml", "-h", host, "-p", str(port)]
    command = [sys.executable, "-m", "dagster", "dev", *where]
    os.execve(sys.executable, command, environment)


@app.command()
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
    from .serve import serve_in_terminal

    serve_in_terminal(profile, home, host, port)


@app.command()
def doctor(profile: ProfileOption = "sketch", home: HomeOption = ".interleave") -> None:
    """Say what a profile needs and does not find here; exit status 1 if anything is missing."""
    from .doctor import report

    raise typer.Exit(0 if report(profile, home) else 1)


@app.command()
def checkpoints(
    home: HomeOption = ".interleave",
    name: Annotated[str, typer.Option(help="Only versions of this checkpoint.")] = "",
) -> None:
    """List the trained models: parents, status, main metrics."""
    from .checkpoints import print_checkpoints

    print_checkpoints(home, name or None)


@generator.command("list")
def list_generators(profile: ProfileOption = "sketch") -> None:
    """List the models that can draw: what each can do, and whether it can be used here."""
    from .generators import print_generators

    print_generators(profile)


@generator.command("serve")
def serve_generator(
    model: Annotated[
        str, typer.Argument(help="Name, as `interleave generator list` shows it, or `sketch`.")
    ],
    registry: Annotated[
        Path | None, typer.Option(help="YAML file with more models, as profiles name it.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Copies of the model; default one for each GPU.")
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; beyond loopback INTERLEAVE_IMAGES_KEY is needed."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8010,
    batch: Annotated[int, typer.Option(min=1, help="Pictures drawn at once, at most.")] = 4,
    queue: Annotated[int, typer.Option(min=0, help="Pictures that may wait; more are 429.")] = 64,
    device: Annotated[
        Device, typer.Option(help="auto: a GPU for each replica where there are any.")
    ] = "auto",
    ray: Annotated[
        str | None,
        typer.Option(help="Address of a running Ray cluster, from one of its nodes; default none."),
    ] = None,
) -> None:
    """Serve a model over OpenAI's images API, with replicas on Ray Serve.

    Example: `interleave generator serve sketch`
    """
    from inference.images_server.serving import serve_images
    from inference.images_server.settings import ImagesServerSettings

    settings = ImagesServerSettings(
        host=host, port=port, replicas=replicas, batch=batch, queue=queue, device=device, ray=ray
    )
    serve_images(model, registry, settings, lambda line: typer.echo(line, err=True))


@agents.command("serve")
def serve_agent(
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="A name that `interleave checkpoints` lists, a folder, or an id of Hugging Face."
        ),
    ],
    flags: Annotated[
        list[str] | None, typer.Argument(help="After `--`: more flags of `vllm serve`.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="Of a name; default: the promoted one, else the newest.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="GPUs that share it; 0: CPU. Default: 1 if any.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a question and its answer.")
    ] = None,
    home: HomeOption = ".interleave",
) -> None:
    """Serve a planner or critic with vLLM, which is installed on first use, until Ctrl-C."""
    from training import environments
    from training.serving import ServerSettings, find_model
    from warehouse import Home

    from .agents import serve_in_terminal

    model = find_model(checkpoint, Home(home), version)
    settings = ServerSettings(
        host=host,
        port=port,
        gpus=min(1, environments.gpus()) if gpus is None else gpus,
        max_length=max_length,
        flags=tuple(flags or ()),
    )
    serve_in_terminal(model, settings, Home(home))


NameArgument = Annotated[str, typer.Argument(help="Name, as `interleave checkpoints` lists it.")]


@app.command()
def promote(
    name: NameArgument,
    version: Annotated[str, typer.Argument(help="Version, likewise.")],
    home: HomeOption = ".interleave",
) -> None:
    """Put a version of a checkpoint in use, whatever evaluation says of it."""
    from training.registry import CheckpointRegistry
    from warehouse import Home

    row = CheckpointRegistry(Home(home)).promote(name, version, "by command")
    typer.echo(f"{row.name} {row.version} is in use")


@app.command()
def rollback(name: NameArgument, home: HomeOption = ".interleave") -> None:
    """Put the version in use again that was before this one."""
    from training.registry import CheckpointRegistry
    from warehouse import Home

    row = CheckpointRegistry(Home(home)).roll_back(name, "by command")
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
