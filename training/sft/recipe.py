"""From a recipe and a profile's changes to it to the YAML that LLaMA-Factory reads."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from schemas import FoundryError
from schemas.yaml_config import ConfigModel, load_document

from .settings import SftSettings

RECIPES = Path(__file__).parent / "recipes"
CONFIG = "config.yaml"
CHECKPOINTS = "checkpoints"
_OPTION_NAMES = {
    "max_steps": "max_steps",
    "learning_rate": "learning_rate",
    "cutoff_len": "cutoff_len",
    "image_max_pixels": "image_max_pixels",
    "save_steps": "save_steps",
    "epochs": "num_train_epochs",
    "revision": "model_revision",
}


class SftRecipe(ConfigModel):
    """A file of `recipes/`."""

    gpus: int = Field(ge=0, description="GPUs; 0: trained on the CPU")
    threads: int = Field(ge=1, description="CPU threads per process")
    batch: int = Field(ge=1, description="Samples per optimizer step, over all GPUs")
    batch_per_device: int = Field(ge=1, description="Samples that one device holds at once")
    options: dict[str, Any] = Field(description="Options of LLaMA-Factory, by its names")

    @property
    def accumulation(self) -> int:
        """Forward passes of a device per optimizer step.

        Raises:
            FoundryError: the batch cannot be divided evenly.
        """
        per_pass = self.batch_per_device * max(1, self.gpus)
        if self.batch % per_pass:
            raise FoundryError(
                f"a batch of {self.batch} is no multiple of {per_pass} (batch_per_device times "
                "GPUs); change batch or batch_per_device"
            )
        return self.batch // per_pass


def read_recipe(settings: SftSettings) -> SftRecipe:
    """The recipe of the settings, with their changes to it.

    Raises:
        DocumentError: the recipe's file cannot be read or is not of this form.
    """
    path = _recipe_path(settings)
    recipe = load_document(path, SftRecipe)
    changes = {
        name: value
        for name in ("gpus", "threads", "batch", "batch_per_device")
        if (value := getattr(settings, name)) is not None
    }
    if settings.batch and not settings.batch_per_device:
        share = settings.batch // max(1, changes.get("gpus", recipe.gpus))
        changes["batch_per_device"] = max(1, min(recipe.batch_per_device, share))
    options = recipe.options | _changed_options(settings)
    if isinstance(plan := options.get("deepspeed"), str):
        options["deepspeed"] = str(path.parent / plan)
    return recipe.model_copy(update={**changes, "options": options})


def recipe_content(settings: SftSettings) -> dict[str, Any]:
    """The content of the recipe's file, without the settings' changes.

    Raises:
        DocumentError: the file cannot be read or is not of this form.
    """
    return load_document(_recipe_path(settings), SftRecipe).model_dump(mode="json")


def llamafactory_config(
    settings: SftSettings, parent: Path | str, data: Path, datasets: Sequence[str], folder: Path
) -> dict[str, Any]:
    """The configuration of LLaMA-Factory for one training.

    Args:
        parent: folder of the model that is trained, or its id on the Hugging Face hub.
        data: folder of an export for LLaMA-Factory.
        folder: the training's working folder.
    """
    recipe = read_recipe(settings)
    return {
        "model_name_or_path": str(parent),
        "dataset_dir": str(data),
        "media_dir": str(data),
        "dataset": ",".join(datasets),
        "output_dir": str(folder / CHECKPOINTS),
        "per_device_train_batch_size": recipe.batch_per_device,
        "gradient_accumulation_steps": recipe.accumulation,
        "seed": settings.seed,
        **recipe.options,
        "bf16": recipe.options.get("bf16", _cpu_has_bfloat16() and not recipe.gpus),
    }


def environment(recipe: SftRecipe, python: Path, folder: Path) -> dict[str, str]:
    """Variables for LLaMA-Factory.

    Several GPUs mean torchrun, which it starts by name: its folder comes first in `PATH`.
    """
    devices = {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": str(recipe.gpus)}
    return {
        "OMP_NUM_THREADS": str(recipe.threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # idle threads sleep: the data loader needs the cores
        "HF_DATASETS_CACHE": str(folder / "cache"),
        "PATH": os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)]),
        **(devices if recipe.gpus else {"FORCE_TORCHRUN": "0", "CUDA_VISIBLE_DEVICES": ""}),
    }


def _cpu_has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 in hardware; others emulate it slowly."""
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _recipe_path(settings: SftSettings) -> Path:
    if isinstance(settings.recipe, Path):
        return settings.recipe
    return RECIPES / f"{settings.recipe}.yaml"


def _changed_options(settings: SftSettings) -> dict[str, Any]:
    values = {option: getattr(settings, name) for name, option in _OPTION_NAMES.items()}
    return {name: value for name, value in values.items() if value is not None} | settings.options
