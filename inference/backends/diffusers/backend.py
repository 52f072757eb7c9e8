"""The backend `diffusers`: a generator in this process."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas import FoundryError
from schemas.trajectories import Role
from warehouse import Home

from ..backend import Backends, BackendSettings, Finding, register
from ..model_files import download_command
from .registry import DiffusersSettings, missing_requirements, select_model


@register
class DiffusersBackend(DiffusersSettings, BackendSettings):
    """A generator in this process. A batch is filled only if `limits.generator` is as large."""

    backend = "diffusers"
    summary = "A generator in this process, where `roles` names diffusers"
    plays = ("generator",)

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        from .pipeline_runner import diffusers_generator

        return {"generator": diffusers_generator(self)}

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        yield from map(check_pipeline, filter(None, (self, self.edit)))


def check_pipeline(settings: DiffusersSettings) -> Finding:
    """Weights of a generator that runs on this machine, in a process of ours or in a server."""
    try:
        choice = select_model(settings)
    except FoundryError as error:
        return Finding(f"generator {settings.model}", str(error))
    reasons = missing_requirements(choice.model, on_gpu=settings.device != "cpu")
    parts = [part for part in (choice.model, choice.model.lora) if part]
    commands = " and ".join(download_command(part.model, part.revision) for part in parts)
    remedy = f"weights are downloaded for the first image, or by {commands}"
    return Finding(
        f"generator {choice.identity}", f"{', '.join(reasons)}; {remedy}" if reasons else None
    )
