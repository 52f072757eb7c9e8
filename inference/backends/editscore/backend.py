"""The backend `editscore`: an open edit-reward model in this process."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from schemas.trajectories import Role
from warehouse import Home

from ..backend import Backends, BackendSettings, Finding, register
from ..model_files import BatchTokens, Device, DType, cached_file, download_command, missing_here

_MODEL_FILES = ("model.safetensors", "model.safetensors.index.json")
_ADAPTER_FILE = "adapter_model.safetensors"
# Of the default model. For its adapter no commit was found in public code: it is not pinned.
_REVISION = "0c351dd01ed87e9c1b53cbc748cba10e6187ff3b"


@register
class EditScoreSettings(BackendSettings):
    """An open edit-reward model in this process; the defaults of sampling are its authors'."""

    backend = "editscore"
    summary = "An open reward model in this process, where `roles` or `ensemble` names it"
    plays = ("scorer",)

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

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        from .scorer import EditScoreScorer

        return {"scorer": EditScoreScorer(self)}

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        from .scorer import prompt_texts

        reasons = ", ".join(missing_requirements(self))
        fix = f"{reasons}; weights are downloaded for the first attempt" if reasons else None
        is_pinned = self.adapter is None or self.adapter_revision
        note = "" if is_pinned else ", not pinned: name a commit in `editscore.adapter_revision`"
        yield Finding(f"scorer {self.adapter or self.model}{note}", fix)
        yield Finding.resolved("wording of editscore", lambda: prompt_texts(self).origin)


def missing_requirements(settings: EditScoreSettings) -> Iterator[str]:
    """Why it cannot be used on this machine, in a few words each; nothing: it can."""
    model, adapter = settings.model, settings.adapter
    packages = ["transformers", *(["peft"] if adapter else [])]
    yield from missing_here(packages, on_gpu=settings.device != "cpu")
    if not any(cached_file(model, settings.revision, file) for file in _MODEL_FILES):
        yield f"{model} not downloaded: {download_command(model, settings.revision)}"
    if adapter and not cached_file(adapter, settings.adapter_revision, _ADAPTER_FILE):
        yield f"{adapter} not downloaded: {download_command(adapter, settings.adapter_revision)}"
