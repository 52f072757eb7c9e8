"""Agents to serve: a checkpoint by its name, a folder, or a model of Hugging Face.

From each follow the command line of `vllm serve`, and the lines of a profile that ask the server.
"""

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isqrt
from pathlib import Path
from typing import NamedTuple, get_args

import yaml

from warehouse import Home
from warehouse.file_lock import exclusive_lock

from ..backends.checkpoint.manifest import (
    HUB_ID,
    MANIFEST_FILE,
    AgentRole,
    CheckpointError,
    Manifest,
    checkpoint_rows,
    newest,
    read_manifest,
    usable_folder,
)
from ..environments import ensure_environment, gpus
from .server_process import RunningServer, ServerCommand, ServerFailedError, run_server
from .settings import AgentServer

TEMPLATE = Path(__file__).with_name("chat.jinja")
# Default limit of the context length: memory grows with it.
_LENGTH = 32_768
# A planner is given all images of a document of CoMM, which has no limit: the context is one. vLLM
# reserves memory by tokens, not by this number.
_CRITIC_IMAGES, _PLANNER_IMAGES = 2, 64
_CPU_CACHE_BYTES = 1024**3
_USED_MEMORY = 0.9  # of a share; the rest is for what vLLM does not count, such as CUDA itself
# Where white space between the parts is allowed, a model can fill its answer with it.
_STRUCTURED = {"backend": "xgrammar", "disable_any_whitespace": True}
_ANY_ADDRESS = ("0.0.0.0", "::", "")
# vLLM reads the API key that it requires from this variable.
_KEY_VARIABLE = "VLLM_API_KEY"
_REMEDY = "give it more memory or --gpus, or a smaller --max-length"
_SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"


class Address(NamedTuple):
    """Where a server listens."""

    host: str = "127.0.0.1"
    port: int = 8000

    @property
    def url(self) -> str:
        """Base URL for clients."""
        host = socket.gethostname() if self.host in _ANY_ADDRESS else self.host
        return f"{_base_url(host, self.port)}/v1"

    @property
    def health(self) -> str:
        """URL that answers 200 on this machine once the server is ready."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"{_base_url(host, self.port)}/health"


@dataclass(frozen=True)
class ServableAgent:
    """A model to serve.

    Args:
        name: the server's name for it.
        source: folder, or id at Hugging Face.
        revision: at Hugging Face; None: the newest.
        manifest: how to prompt it; None where we did not train it.
        context_length: positions in tokens; None: unknown.
    """

    name: str
    source: str
    revision: str | None = None
    manifest: Manifest | None = None
    context_length: int | None = None

    @property
    def is_local(self) -> bool:
        return Path(self.source).is_dir()


def find_model(reference: str, home: Home, version: str | None = None) -> ServableAgent:
    """The model of a name that `interleave checkpoints` lists, of a folder, or of an id.

    `version`: of a name; None: the promoted one, or else the newest. Of an id: its revision. Raises
    `CheckpointError`: there is none, or its folder is incomplete.
    """
    known = {row.name for row in checkpoint_rows(home)}
    if reference in known:
        _, _, chosen = (newest(reference, home) or "").partition("@")
        return _in_folder(usable_folder(reference, version or chosen, home))
    folder = Path(reference).expanduser()
    if folder.is_dir():
        if version:
            raise CheckpointError(f"{reference} is a folder, which has no versions")
        return _in_folder(folder.absolute())
    if HUB_ID.fullmatch(reference):
        return ServableAgent(reference, reference, version)
    names = ", ".join(sorted(known)) or "none yet"
    raise CheckpointError(
        f"no checkpoint {reference} in {home.root}; there are: {names}. A folder or an id of "
        "Hugging Face (owner/name) can be served as well"
    )


def vllm_server(
    model: ServableAgent,
    settings: AgentServer,
    address: Address,
    announce: Callable[[str], object] = print,
) -> ServerCommand:
    """The program; its environment is installed on first use: see `ensure_environment`."""
    python = ensure_environment("agents", "gpu" if settings.gpus else "cpu", announce)
    command = vllm_command(python, model, settings, address)
    variables = vllm_variables(python, model)
    return ServerCommand("vLLM", command, variables, address.url, address.health)


@contextmanager
def serve(
    model: ServableAgent,
    settings: AgentServer,
    address: Address,
    home: Home,
    announce: Callable[[str], object],
    starting: Callable[[str], object] = lambda line: None,
) -> Iterator[RunningServer]:
    """vLLM, ready; leaving the context, or the end of this process, ends it.

    Args:
        home: its log is written below it.
        announce: called with a line when its environment is being installed.
        starting: called with the newest line of its log until it is ready.

    Raises:
        ServerFailedError: the port is taken, there are fewer GPUs, or vLLM ended.
        FoundryError: its environment cannot be installed.
    """
    if len(settings.gpus) > gpus():
        raise ServerFailedError(
            f"there are {gpus()} GPUs here, not {len(settings.gpus)}; --gpus 0 serves on the CPU"
        )
    with _reserved_port(home.local / "serving" / str(address.port), address) as folder:
        command = replace(vllm_server(model, settings, address, announce), remedy=_REMEDY)
        with run_server(command, folder, starting) as server:
            yield server


@contextmanager
def _reserved_port(folder: Path, address: Address) -> Iterator[Path]:
    """The working folder of the port's only server: nothing listens there, none of ours starts."""
    folder.mkdir(parents=True, exist_ok=True)
    in_use = ServerFailedError(
        f"cannot listen on port {address.port} of {address.host}: it is in use, or not allowed; "
        "choose another with --port"
    )
    with exclusive_lock(folder / "server.lock", in_use):
        try:
            with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            raise in_use from error
        yield folder.absolute()


def vllm_command(
    python: Path, model: ServableAgent, settings: AgentServer, address: Address
) -> list[str]:
    """The command, for the interpreter of vLLM's environment."""
    vllm = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", model.source]
    listen = ["--host", address.host, "--port", str(address.port)]
    service, hardware = _service_flags(model, settings), _hardware_flags(settings)
    return [*vllm, *listen, *service, *hardware, *_prompt_flags(model), *settings.flags]


def vllm_variables(python: Path, model: ServableAgent) -> dict[str, str]:
    """Its environment variables: no usage statistics, and no download of a local model."""
    offline = {"HF_HUB_OFFLINE": "1"} if model.is_local else {}
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return {**quiet, **compiler_variables(python), **offline}


def compiler_variables(python: Path) -> dict[str, str]:
    """What vLLM needs to compile kernels: its environment's programs first in PATH.

    Without ninja or nvcc its default sampler, FlashInfer's, ends the server when it starts. Then it
    is turned off, unless the user's own variable says something else.
    """
    programs = {"PATH": _search_path(python)}
    if missing_compilers(python) and _SAMPLER not in os.environ:
        return {**programs, _SAMPLER: "0"}
    return programs


def missing_compilers(python: Path) -> list[str]:
    """Programs with which FlashInfer compiles and that vLLM of this interpreter cannot find."""
    toolkit = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    path = os.pathsep.join([_search_path(python), str(Path(toolkit) / "bin")])
    return [name for name in ("ninja", "nvcc") if shutil.which(name, path=path) is None]


def _search_path(python: Path) -> str:
    return os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])


def profile_lines(model: ServableAgent, settings: AgentServer, address: Address) -> str:
    """YAML: the section `openai` of a profile, with every role of the model."""
    manifest, roles = model.manifest, list(get_args(AgentRole))
    if manifest:
        roles = [role for role in roles if manifest.has_role(role)]
    key = {"key": _KEY_VARIABLE} if os.environ.get(_KEY_VARIABLE) else {}
    endpoint = {"url": address.url, **key, "concurrency": settings.concurrency}
    agents = {  # an endpoint of its own for each, since YAML would refer to a shared one
        role: {
            "model": model.name,
            "endpoints": [dict(endpoint)],
            # for foreign models JSON by our schemas
            **(manifest.prompting(role) if manifest else {"form": "schema"}),
        }
        for role in roles
    }
    return yaml.safe_dump({"openai": agents}, sort_keys=False, default_flow_style=None, width=100)


def _base_url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _in_folder(folder: Path) -> ServableAgent:
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} is not a checkpoint: there is no config.json in it")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    length = config.get("text_config", config).get("max_position_embeddings")
    manifest = read_manifest(folder) if (folder / MANIFEST_FILE).is_file() else None
    name = manifest.identity if manifest else folder.name
    return ServableAgent(name, str(folder), manifest=manifest, context_length=length)


def _service_flags(model: ServableAgent, settings: AgentServer) -> list[str]:
    length = settings.max_length or min(_LENGTH, model.context_length or _LENGTH)
    revision = ["--revision", model.revision] if model.revision else []
    return [
        *("--served-model-name", model.name, *revision),
        *("--max-model-len", str(length), "--max-num-seqs", str(settings.concurrency)),
        *("--limit-mm-per-prompt", json.dumps({"image": _image_limit(model), "video": 0})),
        *("--structured-outputs-config", json.dumps(_STRUCTURED)),
    ]


def _hardware_flags(settings: AgentServer) -> list[str]:
    """The data types are those of the `checkpoint` backend."""
    if count := len(settings.gpus):
        per_copy = settings.tensor_parallel or count
        copies = ["--data-parallel-size", str(count // per_copy)]
        return [
            *("--dtype", "bfloat16", "--tensor-parallel-size", str(per_copy)),
            *(copies if count > per_copy else []),
            *("--gpu-memory-utilization", f"{_USED_MEMORY * settings.memory:.3g}"),
        ]
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
