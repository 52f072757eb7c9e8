"""The table that `interleave generator list` prints."""

from rich.console import Console
from rich.table import Table as RichTable

from assets.core.profile import load_profile
from inference.backends.diffusers.availability import missing_requirements
from inference.backends.diffusers.registry import PictureModel, Registry, load_registry

_COLUMNS = ("name", "model", "can", "backend", "usable here")


def print_generators(profile_name: str) -> None:
    """All models that the profile knows, the project's own first."""
    profile = load_profile(profile_name)
    registry = load_registry(profile.diffusers.registry)
    console = Console()
    console.print(_grid(registry))
    for name, model in registry.models.items():
        if model.note:
            console.print(f"[bold]{name}[/]: {model.note}", highlight=False)


def _grid(registry: Registry) -> RichTable:
    grid = RichTable(*_COLUMNS, box=None, header_style="bold")
    for name, model in registry.models.items():
        grid.add_row(name, _weights(model), ", ".join(model.can), model.backend, _usable(model))
    return grid


def _weights(model: PictureModel) -> str:
    revision = f" {model.revision_shown}" if model.revision else ""
    lora = " + LoRA" if model.lora else ""
    return f"{model.model}{revision}{lora}"


def _usable(model: PictureModel) -> str:
    reasons = missing_requirements(model)
    return f"[yellow]no: {', '.join(reasons)}[/]" if reasons else "[green]yes[/]"
