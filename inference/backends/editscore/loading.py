"""Profile settings of the `editscore` backend, and its weights: a model, with an adapter merged."""

import sys
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from schemas.yaml_config import ConfigModel
from warehouse.storage import first_line

from ...roles import BackendError
from ..checkpoint.encoding import PromptLayout, resize_to_pixels
from ..checkpoint.model import BatchTokens, LoadedModel, load_encoder, load_weights
from ..model_files import (
    Device,
    DType,
    cached_file,
    device_and_dtype,
    download_command,
    missing_here,
)

# Images come before the text; the variant on Qwen2.5-VL was trained with numbered images.
_LAYOUTS = {
    "qwen3_vl": PromptLayout(),
    "qwen2_5_vl": PromptLayout(
        turn="<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" + PromptLayout().turn,
        image="<img{number}>: " + PromptLayout().image,
    ),
}
# The model's own image processor chooses the size; only sizes that it rejects are changed.
_ANY_SIZE = partial(resize_to_pixels, least=1, most=sys.maxsize)
_MODEL_FILES = ("model.safetensors", "model.safetensors.index.json")
_ADAPTER_FILE = "adapter_model.safetensors"
# Of the default model. For its adapter no commit was found in public code: it is not pinned.
_REVISION = "0c351dd01ed87e9c1b53cbc748cba10e6187ff3b"


class EditScoreSettings(ConfigModel):
    """An open edit-reward model in this process; the defaults of sampling are its authors'."""

    model: str = Field(
        "Qwen/Qwen3-VL-8B-Instruct",
        description="Qwen3-VL or Qwen2.5-VL: a Hugging Face id, or a folder",
    )
    revision: str | None = Field(
        None,
        description="Commit, tag or branch of it; null: of the default model a fixed commit, of "
        "others the newest",
    )
    adapter: str | None = Field(
        "EditScore/EditScore-Qwen3-VL-8B-Instruct",
        description="Its low-rank weights, likewise; null: they are merged into the model",
    )
    adapter_revision: str | None = Field(None, description="Commit, tag or branch of them")
    prompts: Path | None = Field(
        None,
        description="Folder with the prompts it was trained on: `semantics.txt`, in which "
        "`<instruction>` stands for the step's goal, and `quality.txt`; null: our own prompts",
    )
    score_range: float = Field(25, gt=0, description="Its highest rating")
    samples: int = Field(
        4, ge=1, description="Answers to each prompt, of which the mean counts (authors: 1 or 4)"
    )
    temperature: float = Field(0.7, gt=0, description="Of an answer's sampling")
    top_p: float = Field(
        0.9, gt=0, le=1, description="Share of the probability that is sampled from"
    )
    top_k: int = Field(20, ge=1, description="Tokens that are sampled from, at most")
    seed: int = Field(42, description="Of the first sample; the next ones follow it")
    max_new_tokens: int = Field(512, ge=1, description="Tokens of an answer at most")
    device: Device = "auto"
    dtype: DType = "auto"
    batch: int = Field(
        32,
        ge=1,
        description="Prompts answered at once, at most; an attempt has two per sample, and "
        "`limits.agents` attempts are under way",
    )
    batch_tokens: BatchTokens = 131_072
    gather_seconds: float = Field(
        0.02, ge=0, description="How long the first prompt of a batch waits for others"
    )

    @model_validator(mode="after")
    def _pin_default_model(self) -> "EditScoreSettings":
        if self.revision is None and self.model == type(self).model_fields["model"].default:
            object.__setattr__(self, "revision", _REVISION)
        return self


def missing_requirements(settings: EditScoreSettings) -> Iterator[str]:
    """Why it cannot be used on this machine, in a few words each; nothing: it can."""
    model, adapter = settings.model, settings.adapter
    packages = ["transformers", *(["peft"] if adapter else [])]
    yield from missing_here(packages, on_gpu=settings.device != "cpu")
    if not any(cached_file(model, settings.revision, file) for file in _MODEL_FILES):
        yield f"{model} not downloaded: {download_command(model, settings.revision)}"
    if adapter and not cached_file(adapter, settings.adapter_revision, _ADAPTER_FILE):
        yield f"{adapter} not downloaded: {download_command(adapter, settings.adapter_revision)}"


def load(settings: EditScoreSettings, identity: str) -> LoadedModel:
    """The model that the settings name; a process caches the last one.

    Raises:
        BackendError: the weights are unavailable, or cannot be loaded.
    """
    weights = settings.model_dump(
        include={"model", "revision", "adapter", "adapter_revision", "device", "dtype"}
    )
    return _load(identity, EditScoreSettings(**weights))


@lru_cache(maxsize=1)
def _load(identity: str, settings: EditScoreSettings) -> LoadedModel:
    device, dtype = device_and_dtype(settings.device, settings.dtype)
    try:
        model = _load_model(settings, dtype)
        layout = _LAYOUTS[model.config.model_type]
        encoder = load_encoder(settings.model, settings.revision, _ANY_SIZE, layout)
        return LoadedModel(identity, encoder, model.to(device).eval())
    except BackendError:
        raise
    except Exception as error:  # transformers, peft, safetensors and the hub raise all kinds
        raise BackendError(
            f"editscore {identity} cannot be loaded on {device}: {first_line(error)}"
        ) from error


def _load_model(settings: EditScoreSettings, dtype: Any) -> Any:
    from transformers import AutoConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    source = {"revision": settings.revision}
    model_type = AutoConfig.from_pretrained(settings.model, **source).model_type
    if model_type not in _LAYOUTS:
        raise BackendError(
            f"editscore.model {settings.model} is a {model_type}; EditScore is for "
            f"{' and '.join(_LAYOUTS)}"
        )
    model = load_weights(settings.model, **source, dtype=dtype, use_safetensors=True)
    if settings.adapter is None:
        return model
    return _merge_adapter(model, settings.adapter, settings.adapter_revision)


def _merge_adapter(model: Any, adapter: str, revision: str | None) -> Any:
    """The model with all of an adapter's weights merged.

    `PeftModel.from_pretrained` only warns about weights that do not match, and the untrained model
    would give the ratings.
    """
    from peft import PeftConfig, PeftModel

    tuned = PeftModel(model, PeftConfig.from_pretrained(adapter, revision=revision))
    result = tuned.load_adapter(adapter, "default", revision=revision)
    unmatched = [*result.missing_keys, *result.unexpected_keys]
    if unmatched:
        raise BackendError(
            f"editscore.adapter {adapter} is not for this model: {len(unmatched)} of its weights "
            f"do not match or are missing, such as {unmatched[0]}"
        )
    return tuned.merge_and_unload()
