"""Weights that a backend loads into this process: which they are, and whether they are here.

They are named as Hugging Face does, by a repository's id and a revision, or by a local folder.
"""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..engine.hashing import stable_hash


def weights_revision(model: str, revision: str | None) -> str:
    """The revision, or a hash of a folder's files by name, size and time of change."""
    folder = Path(model)
    if not folder.is_dir():
        return revision or "main"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    stats = [(str(path.relative_to(folder)), path.stat()) for path in files]
    return stable_hash([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


def cached_file(model: str, revision: str | None, file: str) -> Path | None:
    """A file of a local folder, or of the Hugging Face cache."""
    folder = Path(model)
    if folder.is_dir():
        return folder / file if (folder / file).is_file() else None
    from huggingface_hub import constants, try_to_load_from_cache

    found = try_to_load_from_cache(model, file, constants.HF_HUB_CACHE, revision=revision)
    return Path(found) if isinstance(found, str) else None


def installed(package: str) -> bool:
    """Whether a distribution is installed."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def has_gpu() -> bool:
    """Whether torch can use one."""
    import torch

    return torch.cuda.is_available()
