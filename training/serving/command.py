"""The command line of `vllm serve`."""

import json
from math import isqrt
from pathlib import Path

from pydantic import Field

from schemas.yaml_config import ConfigModel

from .models import ServableAgent

TEMPLATE = Path(__file__).with_name("chat.jinja")
# As much of a model's length as we use where nobody asks for more: memory grows with it.
_LENGTH = 32_768
_PICTURES_OF_A_VERDICT, _PICTURES_OF_A_PLAN = 2, 16
_CPU_CACHE_BYTES = 1024**3
# Without white space between its parts a model cannot fill an answer with blanks.
_STRUCTURED = {"backend": "xgrammar", "disable_any_whitespace": True}
_GPU_AT_ONCE, _CPU_AT_ONCE = 128, 16


class ServerSettings(ConfigModel):
    """Where a server listens, and what it runs on."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8000, ge=1, le=65535, description="Port to listen on")
    gpus: int = Field(0, ge=0, description="GPUs that share the model; 0: vLLM's CPU build")
    max_length: int | None = Field(
        None, ge=1, description="Tokens of a question and its answer; null: 32768, or what it can"
    )
    flags: tuple[str, ...] = Field((), description="More flags of `vllm serve`; they win over ours")

    @property
    def at_once(self) -> int:
        """Questions that are answered at the same time."""
        return _GPU_AT_ONCE if self.gpus else _CPU_AT_ONCE


def vllm_command(python: Path, model: ServableAgent, settings: ServerSettings) -> list[str]:
    """The command, for the interpreter of vLLM's environment."""
    vllm = [str(python), "-m", "vllm.entrypoints.cli.main", "serve"]
    flags = [*_service(model, settings), *_hardware(settings), *_asking(model)]
    return [*vllm, model.source, *flags, *settings.flags]


def vllm_variables(model: ServableAgent) -> dict[str, str]:
    """Variables of its environment: nothing is reported, and nothing fetched that is here."""
    offline = {"HF_HUB_OFFLINE": "1"} if model.is_local else {}
    return {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", **offline}


def _service(model: ServableAgent, settings: ServerSettings) -> list[str]:
    length = settings.max_length or min(_LENGTH, model.longest or _LENGTH)
    revision = ["--revision", model.revision] if model.revision else []
    return [
        *("--served-model-name", model.name, *revision),
        *("--host", settings.host, "--port", str(settings.port)),
        *("--max-model-len", str(length), "--max-num-seqs", str(settings.at_once)),
        *("--limit-mm-per-prompt", json.dumps({"image": _pictures(model), "video": 0})),
        *("--structured-outputs-config", json.dumps(_STRUCTURED)),
    ]


def _hardware(settings: ServerSettings) -> list[str]:
    """The types of numbers are those of the `checkpoint` backend."""
    if settings.gpus:
        return ["--dtype", "bfloat16", "--tensor-parallel-size", str(settings.gpus)]
    cache = ["--kv-cache-memory-bytes", str(_CPU_CACHE_BYTES)]
    return ["--dtype", "float32", "--enforce-eager", *cache]


def _asking(model: ServableAgent) -> list[str]:
    """A model of ours is asked as it was trained, and not as its family's defaults have it."""
    if model.manifest is None:
        return []
    template = ["--chat-template", str(TEMPLATE), "--chat-template-content-format", "openai"]
    return [*template, "--generation-config", "vllm"]


def _pictures(model: ServableAgent) -> int | dict[str, int]:
    """How many pictures a question may have, and how large they are, for which memory is kept."""
    manifest = model.manifest
    if manifest is None:
        return _PICTURES_OF_A_PLAN
    count = _PICTURES_OF_A_VERDICT if manifest.role == "critic" else _PICTURES_OF_A_PLAN
    side = isqrt(manifest.image_max_pixels)
    return {"count": count, "width": side, "height": side}
