"""The command line of `vllm serve`."""

import json
import socket
from math import isqrt
from pathlib import Path

from pydantic import Field

from schemas.yaml_config import ConfigModel

from .models import ServableAgent

TEMPLATE = Path(__file__).with_name("chat.jinja")
# Default limit of the context length: memory grows with it.
_LENGTH = 32_768
_CRITIC_IMAGES, _PLANNER_IMAGES = 2, 16
_CPU_CACHE_BYTES = 1024**3
# Where white space between the parts is allowed, a model can fill its answer with it.
_STRUCTURED = {"backend": "xgrammar", "disable_any_whitespace": True}
_GPU_CONCURRENCY, _CPU_CONCURRENCY = 128, 16
_ANY_ADDRESS = ("0.0.0.0", "::", "")


class ServerSettings(ConfigModel):
    """Address and hardware of a server."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8000, ge=1, le=65535, description="Port to listen on")
    gpus: int = Field(0, ge=0, description="GPUs that share the model; 0: vLLM's CPU build")
    max_length: int | None = Field(
        None, ge=1, description="Tokens of a question and its answer; null: 32768, or what it can"
    )
    flags: tuple[str, ...] = Field((), description="More flags of `vllm serve`; they win over ours")

    @property
    def concurrency(self) -> int:
        """Requests that are answered at the same time."""
        return _GPU_CONCURRENCY if self.gpus else _CPU_CONCURRENCY

    @property
    def url(self) -> str:
        """Base URL for clients."""
        host = socket.gethostname() if self.host in _ANY_ADDRESS else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"


def vllm_command(python: Path, model: ServableAgent, settings: ServerSettings) -> list[str]:
    """The command, for the interpreter of vLLM's environment."""
    vllm = [str(python), "-m", "vllm.entrypoints.cli.main", "serve"]
    flags = [*_service_flags(model, settings), *_hardware_flags(settings), *_prompt_flags(model)]
    return [*vllm, model.source, *flags, *settings.flags]


def vllm_variables(model: ServableAgent) -> dict[str, str]:
    """Its environment variables: no usage statistics, and no download of a local model."""
    offline = {"HF_HUB_OFFLINE": "1"} if model.is_local else {}
    return {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", **offline}


def _service_flags(model: ServableAgent, settings: ServerSettings) -> list[str]:
    length = settings.max_length or min(_LENGTH, model.context_length or _LENGTH)
    revision = ["--revision", model.revision] if model.revision else []
    return [
        *("--served-model-name", model.name, *revision),
        *("--host", settings.host, "--port", str(settings.port)),
        *("--max-model-len", str(length), "--max-num-seqs", str(settings.concurrency)),
        *("--limit-mm-per-prompt", json.dumps({"image": _image_limit(model), "video": 0})),
        *("--structured-outputs-config", json.dumps(_STRUCTURED)),
    ]


def _hardware_flags(settings: ServerSettings) -> list[str]:
    """The data types are those of the `checkpoint` backend."""
    if settings.gpus:
        return ["--dtype", "bfloat16", "--tensor-parallel-size", str(settings.gpus)]
    cache = ["--kv-cache-memory-bytes", str(_CPU_CACHE_BYTES)]
    return ["--dtype", "float32", "--enforce-eager", *cache]


def _prompt_flags(model: ServableAgent) -> list[str]:
    """A model of ours is prompted as it was trained, without the defaults of its family."""
    if model.manifest is None:
        return []
    template = ["--chat-template", str(TEMPLATE), "--chat-template-content-format", "openai"]
    return [*template, "--generation-config", "vllm"]


def _image_limit(model: ServableAgent) -> int | dict[str, int]:
    """How many images a request may have, and of what size, for which vLLM reserves memory."""
    manifest = model.manifest
    if manifest is None:
        return _PLANNER_IMAGES
    count = _CRITIC_IMAGES if manifest.role == "critic" else _PLANNER_IMAGES
    side = isqrt(manifest.image_max_pixels)
    return {"count": count, "width": side, "height": side}
