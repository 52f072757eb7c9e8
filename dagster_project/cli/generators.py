"""`interleave generator list` and `interleave generator serve`: the models that draw."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .options import ProfileOption

if TYPE_CHECKING:
    from inference.backends.diffusers.registry import GeneratorModel

Device = Literal["auto", "cpu", "cuda"]

app = typer.Typer(no_args_is_help=True, help="Image generators.")


@app.command("list")
def list_generators(profile: ProfileOption = "sketch") -> None:
    """List image models: what each can do, and whether it can be used here."""
    from rich.console import Console
    from rich.table import Table

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


@app.command("serve")
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
    from inference.images_server.settings import ImagesServerSettings

    settings = ImagesServerSettings(
        host=host, port=port, replicas=replicas, batch=batch, queue=queue, device=device, ray=ray
    )
    serve_images(model, registry, settings, lambda line: typer.echo(line, err=True))
