"""Model weights of backends that run in this process: their version, their files, their device.

Models are named as on Hugging Face, by a repository id and a revision, or by a local folder.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ..calls.hashing import stable_hash

if TYPE_CHECKING:
    import torch

Device = Annotated[
    str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto: cuda where there is one")
]
DType = Annotated[
    Literal["auto", "bfloat16", "float16", "float32"],
    Field(description="Of the weights; auto: bfloat16 on a GPU, float32 on a CPU"),
]

BatchTokens = Annotated[
    int,
    Field(
        ge=1,
        description="Tokens of a batch at most, prompts and longest answers together: it bounds "
        "the memory for keys and values (150 kB a token for Qwen3-VL-8B)",
    ),
]


def weights_revision(model: str, revision: str | None) -> str:
    """The revision, or a hash of a folder's files by name, size and modification time."""
    folder = Path(model)
    if not folder.is_dir():
        return revision or "main"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    stats = [(str(path.relative_to(folder)), path.stat()) for path in files]
    return stable_hash([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


def download_command(model: str, revision: str | None) -> str:
    """The command that downloads a model, of a revision if one is given; with a note if not."""
    if revision:
        return f"`hf download {model} --revision {revision}`"
    return f"`hf download {model}` (not pinned: the newest)"


def cached_file(model: str, revision: str | None, file: str) -> Path | None:
    """A file of a local folder, or of the Hugging Face cache; None: it is not there."""
    folder = Path(model)
    if folder.is_dir():
        return folder / file if (folder / file).is_file() else None
    from huggingface_hub import constants, try_to_load_from_cache

    path = try_to_load_from_cache(model, file, constants.HF_HUB_CACHE, revision=revision)
    return Path(path) if isinstance(path, str) else None


def weights_bytes(model: str, revision: str | None, largest_part: bool = False) -> int | None:
    """Size of all weights that are here, or of a pipeline's largest part; None: there are none."""
    indexes = (cached_file(model, revision, name) for name in ("model_index.json", "config.json"))
    parts: Counter[Path] = Counter()
    if index := next(filter(None, indexes), None):
        for path in index.parent.rglob("*.safetensors"):
            parts[path.parent] += path.stat().st_size
    if not parts:
        return None
    return max(parts.values()) if largest_part else parts.total()


def missing_here(packages: Iterable[str], on_gpu: bool) -> Iterator[str]:
    """The packages that are not installed, and the GPU that torch cannot use."""
    for name in packages:
        try:
            version(name)
        except PackageNotFoundError:
            yield f"no package {name}"
    if on_gpu:
        import torch

        if not torch.cuda.is_available():
            yield "no GPU"


def device_and_dtype(device: str, dtype: str = "auto") -> "tuple[str, torch.dtype]":
    """Resolve `auto`: a GPU where there is one, in bfloat16; else the CPU, in float32.

    Makes torchvision importable beside a CPU build of torch: call it before importing transformers
    or diffusers.
    """
    from . import torch_cpu_shim

    torch_cpu_shim.install()
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    return device, getattr(torch, dtype)
