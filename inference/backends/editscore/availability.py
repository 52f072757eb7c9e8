"""What the `editscore` backend lacks before it can be used on this machine."""

from collections.abc import Iterator

from ..model_files import cached_file, has_gpu, installed
from .settings import EditScoreSettings

_MODEL = ("model.safetensors", "model.safetensors.index.json")
_ADAPTER = ("adapter_model.safetensors",)


def missing_requirements(settings: EditScoreSettings) -> Iterator[str]:
    """Why it cannot be used here, in a few words each; nothing: it can."""
    packages = ["transformers", *(["peft"] if settings.adapter else [])]
    yield from (f"no package {name}" for name in packages if not installed(name))
    if settings.device != "cpu" and not has_gpu():
        yield "no GPU"
    if not _has_any(settings.model, settings.revision, _MODEL):
        yield f"{settings.model} not downloaded"
    if settings.adapter and not _has_any(settings.adapter, settings.adapter_revision, _ADAPTER):
        yield f"{settings.adapter} not downloaded"


def _has_any(model: str, revision: str | None, files: tuple[str, ...]) -> bool:
    return any(cached_file(model, revision, file) for file in files)
