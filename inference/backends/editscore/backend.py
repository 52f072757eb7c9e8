"""The backend `editscore`: an open edit-reward model in this process."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.trajectories import Role
from warehouse import Home

from ..backend import Backends, BackendSettings, Finding, register
from ..model_files import cached_file, download_command, missing_here
from .scorer import EditScoreScorer, EditScoreSettings, prompt_texts

_MODEL_FILES = ("model.safetensors", "model.safetensors.index.json")
_ADAPTER_FILE = "adapter_model.safetensors"


@register
class EditScoreBackend(EditScoreSettings, BackendSettings):
    """An open edit-reward model in this process."""

    backend = "editscore"
    summary = "An open reward model in this process, where `roles` or `ensemble` names it"
    plays = ("scorer",)

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        return {"scorer": EditScoreScorer(self)}

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        reasons = ", ".join(_missing_requirements(self))
        fix = f"{reasons}; weights are downloaded for the first attempt" if reasons else None
        is_pinned = self.adapter is None or self.adapter_revision
        note = "" if is_pinned else ", not pinned: name a commit in `editscore.adapter_revision`"
        yield Finding(f"scorer {self.adapter or self.model}{note}", fix)
        yield Finding.resolved("wording of editscore", lambda: prompt_texts(self).origin)


def _missing_requirements(settings: EditScoreSettings) -> Iterator[str]:
    """Why it cannot be used on this machine, in a few words each; nothing: it can."""
    model, adapter = settings.model, settings.adapter
    packages = ["transformers", *(["peft"] if adapter else [])]
    yield from missing_here(packages, on_gpu=settings.device != "cpu")
    if not any(cached_file(model, settings.revision, file) for file in _MODEL_FILES):
        yield f"{model} not downloaded: {download_command(model, settings.revision)}"
    if adapter and not cached_file(adapter, settings.adapter_revision, _ADAPTER_FILE):
        yield f"{adapter} not downloaded: {download_command(adapter, settings.adapter_revision)}"
