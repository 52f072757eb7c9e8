"""The job of fine-tuning a model: what its driver needs to know."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from schemas.yaml_config import ConfigModel

from ..launch import TrainerJob
from .recipe import read_recipe
from .settings import SftSettings


class SftJob(ConfigModel):
    """Payload of the driver."""

    parent: str = Field(description="Folder of the model that is trained, or its id on the hub")
    data: Path = Field(description="Folder of the export for LLaMA-Factory")
    datasets: list[str] = Field(min_length=1, description="Data sets of the export, by name")
    settings: SftSettings = Field(description="How")


def sft_job(
    name: str,
    folder: Path,
    parent: Path | str,
    data: Path,
    datasets: Sequence[str],
    settings: SftSettings,
) -> TrainerJob:
    """Fine-tune `parent` on data sets of the export in `data`; `folder` is absolute.

    Raises:
        DocumentError: the recipe cannot be read.
    """
    model = str(parent.absolute()) if isinstance(parent, Path) else parent
    if isinstance(settings.recipe, Path):
        settings = settings.model_copy(update={"recipe": settings.recipe.absolute()})
    payload = SftJob(parent=model, data=data.absolute(), datasets=list(datasets), settings=settings)
    return TrainerJob(
        name=name,
        module=f"{__package__}.driver",
        folder=folder,
        payload=payload.model_dump(mode="json"),
        gpus=read_recipe(settings).gpus,
    )
