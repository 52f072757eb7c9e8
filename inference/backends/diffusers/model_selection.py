"""The model that a profile selects: its parameters, its identity, and what it requires here."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from ...calls.hashing import stable_hash
from ...roles import BackendError
from ..model_files import cached_file, missing_here, weights_revision
from .registry import DiffusersSettings, GeneratorModel, Registry, SamplingParams, load_registry

_INDEX = "model_index.json"
# The parts that hold nearly all of a pipeline's weights, in every class of the registry.
_PARTS = ("transformer", "text_encoder", "vae")
_GEMINI_KEY = "GEMINI_API_KEY"


@dataclass(frozen=True)
class SelectedModel:
    """A model, and its sampling parameters where a request sets none.

    `offload`: see `DiffusersSettings`.
    """

    name: str
    model: GeneratorModel
    params: SamplingParams
    dtype: str
    offload: bool = False

    @property
    def identity(self) -> str:
        """`name@revision-hash`, which changes whenever images may.

        Device, offloading and batch are not part of it: they change pixels by rounding only. Never
        change the keys of the hash.
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
    name, registry = settings.model, load_registry(settings.registry)
    folder = Path(name).expanduser()
    if name not in registry.models and folder.is_dir():
        name, model = folder.name, _local_model(folder, registry)
    else:
        model = registry.find(name)
    if model.backend != "diffusers":
        raise BackendError(
            f"{name} is not for backend diffusers but for {model.backend}: "
            f"{model.note or f'give the generator to {model.backend} under `roles`'}"
        )
    if settings.revision is not None:
        model = model.model_copy(update={"revision": settings.revision})
    params = settings.over(model.defaults)
    return SelectedModel(name, model, params, settings.dtype, settings.offload)


def _local_model(folder: Path, registry: Registry) -> GeneratorModel:
    """The model in a pipeline's folder, with the abilities of its class."""
    try:
        pipeline = str(json.loads((folder / _INDEX).read_text("utf-8"))["_class_name"])
    except (OSError, ValueError, KeyError, TypeError):
        raise BackendError(
            f"{folder} is no pipeline of diffusers: there is no {_INDEX} in it that names a class"
        ) from None
    similar = registry.of_pipeline(pipeline)
    if similar is None:
        raise BackendError(
            f"{folder} is a {pipeline}, which is unknown here; describe it in a file and name that "
            "in `diffusers.registry`"
        )
    return similar.model_copy(update={"model": str(folder), "revision": None, "gated": False})


def missing_requirements(model: GeneratorModel, on_gpu: bool = True) -> list[str]:
    """Why a generator cannot be used on this machine, in a few words each; empty: it can."""
    if model.backend == "images":
        return ["needs a server of its own"]
    if model.backend == "gemini":
        no_key = [] if os.environ.get(_GEMINI_KEY) else [f"no key {_GEMINI_KEY}"]
        return [*missing_here(["google-genai"], on_gpu=False), *no_key]
    packages = ["diffusers", *(["peft"] if model.lora else [])]
    missing = list(missing_here(packages, on_gpu))
    if not _is_downloaded(model):
        missing.append(f"weights not downloaded{', gated' if model.gated else ''}")
    return missing


def _is_downloaded(model: GeneratorModel) -> bool:
    """Whether LoRA and parts have some weights; a single missing file of several is not noticed."""
    lora, index = model.lora, cached_file(model.model, model.revision, _INDEX)
    if index is None or (lora and not cached_file(lora.model, lora.revision, lora.file)):
        return False
    names = json.loads(index.read_text("utf-8"))
    parts = [index.parent / part for part in _PARTS if part in names]
    return all(any(part.glob("*.safetensors")) for part in parts)
