"""The model that a profile selects: its parameters, its identity, and what it requires here."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...engine.hashing import stable_hash
from ...roles import BackendError
from ..model_files import cached_file, has_gpu, is_installed, weights_revision
from .registry import GeneratorModel, Registry, load_registry
from .settings import DiffusersSettings, SamplingParams

_INDEX = "model_index.json"
# The parts that hold nearly all of a pipeline's weights, in every class of the registry.
_PARTS = ("transformer", "text_encoder", "vae")
_GEMINI_KEY = "GEMINI_API_KEY"


@dataclass(frozen=True)
class SelectedModel:
    """A model, and its sampling parameters where a request sets none."""

    name: str
    model: GeneratorModel
    params: SamplingParams
    dtype: str

    @property
    def identity(self) -> str:
        """`name@revision-hash`, which changes whenever images may.

        Device and batch are not part of it: they change pixels by rounding only. Never change the
        keys of the hash.
        """
        model, lora = self.model, self.model.lora
        hashed = model.model_dump(
            mode="json", include={"model", "pipeline", "lora", "together", "guided_by"}
        )
        hashed |= {"manner": self.params.model_dump(), "dtype": self.dtype}
        weights = [part for part in (model, lora) if part]
        hashed |= {"weights": [weights_revision(part.model, part.revision) for part in weights]}
        revision = weights_revision(model.model, model.revision)
        return f"{self.name}@{revision[:12]}-{stable_hash(hashed)[:8]}"


def select_model(settings: DiffusersSettings) -> SelectedModel:
    """The model that the settings name.

    Raises:
        BackendError: there is none of that name, or it is not for diffusers.
        DocumentError: the registry cannot be read.
    """
    name, model = _find_model(settings.model, load_registry(settings.registry))
    if model.backend != "diffusers":
        raise BackendError(
            f"{name} is not for backend diffusers but for {model.backend}: "
            f"{model.note or f'give the generator to {model.backend} under `roles`'}"
        )
    if settings.revision is not None:
        model = model.model_copy(update={"revision": settings.revision})
    return SelectedModel(name, model, settings.over(model.defaults), settings.dtype)


def _find_model(reference: str, registry: Registry) -> tuple[str, GeneratorModel]:
    folder = Path(reference).expanduser()
    if reference not in registry.models and folder.is_dir():
        return folder.name, _local_model(folder, registry)
    return reference, registry.find(reference)


def _local_model(folder: Path, registry: Registry) -> GeneratorModel:
    """The model in a pipeline's folder, with the abilities of its class."""
    pipeline = pipeline_of(folder)
    similar = registry.of_pipeline(pipeline)
    if similar is None:
        raise BackendError(
            f"{folder} is a {pipeline}, which is unknown here; describe it in a file and name that "
            "in `diffusers.registry`"
        )
    return similar.model_copy(update={"model": str(folder), "revision": None, "gated": False})


def pipeline_of(folder: Path) -> str:
    """The class that a saved pipeline names.

    Raises:
        BackendError: the folder holds no pipeline.
    """
    try:
        return str(json.loads((folder / _INDEX).read_text("utf-8"))["_class_name"])
    except (OSError, ValueError, KeyError, TypeError):
        raise BackendError(
            f"{folder} is no pipeline of diffusers: there is no {_INDEX} in it that names a class"
        ) from None


def missing_requirements(model: GeneratorModel, on_gpu: bool = True) -> list[str]:
    """Why a generator cannot be used on this machine, in a few words each; empty: it can.

    Args:
        on_gpu: whether it is to run on a GPU; on a CPU these models take very long.
    """
    if model.backend == "gemini":
        return list(_missing_for_gemini())
    if model.backend == "images":
        return ["needs a server of its own"]
    return list(_missing_for_diffusers(model, on_gpu))


def _missing_for_diffusers(model: GeneratorModel, on_gpu: bool) -> Iterator[str]:
    packages = ["diffusers", *(["peft"] if model.lora else [])]
    yield from (f"no package {name}" for name in packages if not is_installed(name))
    if on_gpu and not has_gpu():
        yield "no GPU"
    if not _has_weights(model) or not _has_lora(model):
        gated = ", gated" if model.gated else ""
        yield f"weights not downloaded{gated}"


def _missing_for_gemini() -> Iterator[str]:
    if not is_installed("google-genai"):
        yield "no package google-genai"
    if not os.environ.get(_GEMINI_KEY):
        yield f"no key {_GEMINI_KEY}"


def _has_weights(model: GeneratorModel) -> bool:
    """Whether each part has some weights; a single missing file of several is not noticed."""
    index = cached_file(model.model, model.revision, _INDEX)
    if index is None:
        return False
    names = json.loads(index.read_text("utf-8"))
    parts = [index.parent / part for part in _PARTS if part in names]
    return all(any(part.glob("*.safetensors")) for part in parts)


def _has_lora(model: GeneratorModel) -> bool:
    """Whether its LoRA is here, if it has one."""
    lora = model.lora
    return lora is None or cached_file(lora.model, lora.revision, lora.file) is not None
