"""From a profile's words to one model and its manner, and the name that tables know them by."""

import json
from dataclasses import dataclass
from pathlib import Path

from ...engine.hashing import stable_hash
from ...roles import BackendError
from ..model_files import weights_revision
from .registry import PictureModel, Registry, load_registry
from .sampling_params import SamplingParams
from .settings import DiffusersSettings

INDEX = "model_index.json"


@dataclass(frozen=True)
class SelectedModel:
    """A model, and how it draws where a request says nothing else."""

    name: str
    model: PictureModel
    manner: SamplingParams
    dtype: str

    @property
    def identity(self) -> str:
        """`name@revision-hash`, which changes whenever pictures may.

        Device and batch are not in it: they change pixels by rounding only.
        """
        model, lora = self.model, self.model.lora
        facts = model.model_dump(
            mode="json", include={"model", "pipeline", "lora", "together", "guided_by"}
        )
        facts |= {"manner": self.manner.model_dump(), "dtype": self.dtype}
        weights = [part for part in (model, lora) if part]
        facts |= {"weights": [weights_revision(part.model, part.revision) for part in weights]}
        state = weights_revision(model.model, model.revision)
        return f"{self.name}@{state[:12]}-{stable_hash(facts)[:8]}"


def select_model(settings: DiffusersSettings) -> SelectedModel:
    """The model that the settings name.

    Raises:
        BackendError: there is none of that name, or it is not for diffusers.
        DocumentError: the registry cannot be read.
    """
    name, model = _named(settings.model, load_registry(settings.registry))
    if model.backend != "diffusers":
        raise BackendError(
            f"{name} is not for backend diffusers but for {model.backend}: "
            f"{model.note or f'give the generator to {model.backend} under `roles`'}"
        )
    if settings.revision is not None:
        model = model.model_copy(update={"revision": settings.revision})
    return SelectedModel(name, model, settings.over(model.defaults), settings.dtype)


def _named(reference: str, registry: Registry) -> tuple[str, PictureModel]:
    folder = Path(reference).expanduser()
    if reference not in registry.models and folder.is_dir():
        return folder.name, _local(folder, registry)
    return reference, registry.find(reference)


def _local(folder: Path, registry: Registry) -> PictureModel:
    """A pipeline's folder as a model: what it can do is what its class can do."""
    pipeline = pipeline_of(folder)
    like = registry.of_pipeline(pipeline)
    if like is None:
        raise BackendError(
            f"{folder} is a {pipeline}, of which nothing is known here; describe it in a file and "
            "name that in `diffusers.registry`"
        )
    return like.model_copy(update={"model": str(folder), "revision": None, "gated": False})


def pipeline_of(folder: Path) -> str:
    """The class that a saved pipeline names.

    Raises:
        BackendError: the folder holds no pipeline.
    """
    try:
        return str(json.loads((folder / INDEX).read_text("utf-8"))["_class_name"])
    except (OSError, ValueError, KeyError, TypeError):
        raise BackendError(
            f"{folder} is no pipeline of diffusers: there is no {INDEX} in it that names a class"
        ) from None
