"""Supervised fine-tuning: its settings, recipes, and the YAML that LLaMA-Factory reads."""

import os
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from schemas import FoundryError
from schemas.yaml_config import ConfigModel, load_document

from ..base_model import StartModel
from ..launch.jobs import AbsolutePath
from ..tracking import OFFLINE, TrackingSettings

_RECIPES = Path(__file__).parent / "recipes"
CONFIG = "config.yaml"
CHECKPOINTS = "checkpoints"
_SAME_NAMES = ("max_steps", "learning_rate", "cutoff_len", "image_max_pixels", "save_steps")
_OPTION_NAMES = {name: name for name in _SAME_NAMES} | {
    "epochs": "num_train_epochs",
    "revision": "model_revision",
}
# Options that a batch is divided into -> the settings they follow from; below: those of the driver,
# which depends on where files are and on the order of the checkpoints.
_SETTING_OF = {
    "per_device_train_batch_size": "batch_per_device",
    "gradient_accumulation_steps": "batch",
}
_DRIVERS = frozenset(
    {
        "model_name_or_path",
        "adapter_name_or_path",
        "dataset",
        "dataset_dir",
        "media_dir",
        "output_dir",
        "overwrite_output_dir",
        "resume_from_checkpoint",
        "do_train",
        "save_strategy",
        "save_only_model",
    }
)


class SftSettings(ConfigModel):
    """A recipe, and changes to it; null: as the recipe says."""

    recipe: Literal["sketch", "paper", "reference", "lora"] | Path = Field(
        "sketch",
        description="sketch: a tiny model on two CPU cores; paper: Qwen3-VL-8B on eight GPUs; "
        "reference: with the batch of the published code; lora: the paper's with adapters on one "
        "GPU; or the path of a recipe of your own",
    )
    epochs: float | None = Field(None, gt=0, description="Passes over all rows")
    max_steps: int | None = Field(
        None, ge=1, description="Optimizer steps; where given, they count instead of epochs"
    )
    learning_rate: float | None = Field(None, gt=0, description="Peak learning rate")
    batch: int | None = Field(None, ge=1, description="Samples per optimizer step, over all GPUs")
    batch_per_device: int | None = Field(
        None, ge=1, description="Samples that one device holds at once; the rest is accumulated"
    )
    gpus: int | None = Field(None, ge=0, description="GPUs of a node; 0: trained on the CPU")
    nodes: int = Field(
        1, ge=1, description="Nodes with so many GPUs each; `training.sft.nodes` runs on the others"
    )
    threads: int | None = Field(None, ge=1, description="CPU threads per process")
    cutoff_len: int | None = Field(
        None, ge=1, description="Longest row in tokens; longer ones are left out"
    )
    image_max_pixels: int | None = Field(None, ge=1024, description="Larger images shrink to it")
    save_steps: int | None = Field(
        None, ge=1, description="Steps between checkpoints: what an interruption loses at most"
    )
    start: StartModel | None = Field(
        None,
        description="A model that was not trained here, to start from instead of the base model",
    )
    seed: int = Field(42, ge=0, description="Seed of the rows' order and of all randomness")
    dev_share: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="Share of the prompts whose rows are not trained on: their loss, at every "
        "checkpoint, chooses the checkpoint that is kept; 0: the last one is",
    )
    patience: int | None = Field(
        None, ge=1, description="Evaluations without a lower loss after which training stops"
    )
    revision: str | None = Field(None, description="Commit of a parent from the Hugging Face hub")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Any other options of LLaMA-Factory, by its names"
    )

    @field_validator("options")
    @classmethod
    def _leave_ours(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name in options:
            if setting := _SETTING_OF.get(name):
                raise ValueError(f"{name} follows from `{setting}`: set that, beside `options`")
            if name in _DRIVERS:
                raise ValueError(f"{name}: the driver sets this, its files depend on it: remove")
        return options

    @model_validator(mode="after")
    def _batch_can_be_shared(self) -> "SftSettings":
        if not isinstance(self.recipe, Path) and (problem := _batch_problem(self)):
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _stops_by_an_evaluation(self) -> "SftSettings":
        if self.patience and not self.dev_share:
            raise ValueError("patience counts evaluations: set dev_share, or leave patience out")
        return self

    @property
    def recipe_path(self) -> Path:
        """The recipe's file."""
        if isinstance(self.recipe, Path):
            return self.recipe
        return _RECIPES / f"{self.recipe}.yaml"


class SftJob(ConfigModel):
    """Payload of the driver."""

    parent: AbsolutePath | str = Field(description="Model that is trained; str: its id on the hub")
    data: AbsolutePath = Field(description="Folder of the export for LLaMA-Factory")
    datasets: list[str] = Field(min_length=1, description="Data sets of the export, by name")
    settings: SftSettings = Field(description="How")
    repeats: dict[str, float] = Field(
        {}, description="How often an epoch has the rows of a data set; without one: once"
    )


class SftRecipe(ConfigModel):
    """A file of `recipes/`."""

    gpus: int = Field(ge=0, description="GPUs; 0: trained on the CPU")
    threads: int = Field(ge=1, description="CPU threads per process")
    batch: int = Field(ge=1, description="Samples per optimizer step, over all GPUs")
    batch_per_device: int = Field(ge=1, description="Samples that one device holds at once")
    options: dict[str, Any] = Field(description="Options of LLaMA-Factory, by its names")


def read_recipe(settings: SftSettings) -> SftRecipe:
    """The recipe of the settings, with their changes to it.

    Raises:
        DocumentError: the recipe's file cannot be read or is not of this form.
    """
    recipe = load_document(settings.recipe_path, SftRecipe)
    given = settings.model_dump(exclude_none=True)
    changes = {name: given[name] for name in SftRecipe.model_fields if name in given}
    if settings.batch and not settings.batch_per_device:
        share = settings.batch // (max(1, changes.get("gpus", recipe.gpus)) * settings.nodes)
        changes["batch_per_device"] = max(1, min(recipe.batch_per_device, share))
    changed = {option: given[name] for name, option in _OPTION_NAMES.items() if name in given}
    options = recipe.options | changed | settings.options
    if isinstance(plan := options.get("deepspeed"), str):
        options["deepspeed"] = str(settings.recipe_path.parent / plan)
    return recipe.model_copy(update={**changes, "options": options})


def recipe_content(settings: SftSettings) -> dict[str, Any]:
    """The content of the recipe's file, without the settings' changes."""
    return load_document(settings.recipe_path, SftRecipe).model_dump(mode="json")


def llamafactory_config(
    job: SftJob, folder: Path, data: Path | None = None, tracking: TrackingSettings = OFFLINE
) -> dict[str, Any]:
    """The configuration of LLaMA-Factory for a training in `folder`.

    Args:
        data: folder of the data sets where it is not the export's; pictures are in that.

    Raises:
        FoundryError: the batch cannot be divided evenly.
    """
    recipe, nodes = read_recipe(job.settings), job.settings.nodes
    if problem := _batch_problem(job.settings):
        raise FoundryError(problem)
    # One process prepares the rows for all nodes; without GPUs they talk through gloo.
    shared = {"data_shared_file_system": True, "ddp_backend": None if recipe.gpus else "gloo"}
    return {
        "model_name_or_path": str(job.parent),
        "dataset_dir": str(data or job.data),
        "media_dir": str(job.data),
        "dataset": ",".join(job.datasets),
        "output_dir": str(folder / CHECKPOINTS),
        "per_device_train_batch_size": recipe.batch_per_device,
        "gradient_accumulation_steps": recipe.batch // _samples_of_a_pass(recipe, nodes),
        "seed": job.settings.seed,
        **(shared if nodes > 1 else {}),
        **recipe.options,
        **(_dev_options(job, recipe) if job.settings.dev_share else {}),
        **_tracking_options(job, folder, tracking),
        "bf16": recipe.options.get("bf16", cpu_has_amx() and not recipe.gpus),
    }


def dev_set(name: str) -> str:
    """Name of the data set of the rows of `name` that are not trained on."""
    return f"{name}_dev"


def _dev_options(job: SftJob, recipe: SftRecipe) -> dict[str, Any]:
    """An evaluation at every checkpoint; the best one is kept."""
    return {
        "eval_dataset": ",".join(map(dev_set, job.datasets)),
        "eval_strategy": "steps",
        "eval_steps": recipe.options.get("save_steps", 500),
        "per_device_eval_batch_size": recipe.batch_per_device,
        "prediction_loss_only": True,
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
        "early_stopping_steps": job.settings.patience,
    }


def _tracking_options(job: SftJob, folder: Path, tracking: TrackingSettings) -> dict[str, Any]:
    """Where the trainer reports to, unless the profile's own options say it."""
    options = {
        "report_to": tracking.kind,
        "run_name": f"{folder.parent.name}-{folder.name}",
        "project": tracking.project,
    }
    return options | {k: v for k, v in job.settings.options.items() if k in options}


def _batch_problem(settings: SftSettings) -> str | None:
    """What is wrong with the settings' batch and what to change; None: it can be divided."""
    recipe = read_recipe(settings)
    per_pass = _samples_of_a_pass(recipe, settings.nodes)
    if not recipe.batch % per_pass:
        return None
    return (
        f"a batch of {recipe.batch} is no multiple of {per_pass} (batch_per_device times GPUs of "
        "all nodes); change batch or batch_per_device"
    )


def _samples_of_a_pass(recipe: SftRecipe, nodes: int) -> int:
    return recipe.batch_per_device * max(1, recipe.gpus) * nodes


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


@cache
def cpu_has_amx() -> bool:
    """Whether this processor is quick in bfloat16; by AVX-512's instructions alone a step takes 1.7
    times as long as in float32."""
    described = Path("/proc/cpuinfo")
    flags = described.read_text("utf-8") if described.is_file() else ""
    return "amx_bf16" in flags
