"""What a generator of the registry lacks before it can be used on this machine."""

import json
import os
from collections.abc import Iterator

from ..model_files import cached_file, has_gpu, installed
from .model_selection import INDEX
from .registry import PictureModel

# Those that hold nearly all of a pipeline's weights, in every class of the registry.
_PARTS = ("transformer", "text_encoder", "vae")
_GEMINI_KEY = "GEMINI_API_KEY"


def missing_requirements(model: PictureModel, on_gpu: bool = True) -> list[str]:
    """Why it cannot be used here, in a few words each; empty: it can.

    Args:
        on_gpu: whether it is to draw on one; on a CPU a picture of these models takes very long.
    """
    if model.backend == "gemini":
        return list(_for_gemini())
    if model.backend == "images":
        return ["needs a server of its own"]
    return list(_for_diffusers(model, on_gpu))


def _for_diffusers(model: PictureModel, on_gpu: bool) -> Iterator[str]:
    packages = ["diffusers", *(["peft"] if model.lora else [])]
    yield from (f"no package {name}" for name in packages if not installed(name))
    if on_gpu and not has_gpu():
        yield "no GPU"
    if not _has_weights(model) or (model.lora and not _has_lora(model)):
        gate = ", gated" if model.gated else ""
        yield f"weights not downloaded{gate}"


def _for_gemini() -> Iterator[str]:
    if not installed("google-genai"):
        yield "no package google-genai"
    if not os.environ.get(_GEMINI_KEY):
        yield f"no key {_GEMINI_KEY}"


def _has_weights(model: PictureModel) -> bool:
    """Whether each part has weights; a file that is missing among many is not noticed."""
    index = cached_file(model.model, model.revision, INDEX)
    if index is None:
        return False
    named = json.loads(index.read_text("utf-8"))
    parts = [index.parent / part for part in _PARTS if part in named]
    return all(any(part.glob("*.safetensors")) for part in parts)


def _has_lora(model: PictureModel) -> bool:
    lora = model.lora
    return lora is not None and cached_file(lora.model, lora.revision, lora.file) is not None
