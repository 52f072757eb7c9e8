"""LLaMA-Factory's checkpoints on disk: which are whole, which one training goes on from.

It writes weights, optimizer and chance first, then `trainer_state.json`, then the processor, into
`checkpoint-N`; a process killed in between leaves a part of that. The newest one is what it goes
on from by itself, so the parts have to be out of its way.
"""

import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAME = re.compile(r"checkpoint-(\d+)")
_STATE = "trainer_state.json"
_PROCESSOR = "processor_config.json"
# What of a checkpoint is the model.
_OF_A_MODEL = {".safetensors", ".json", ".jinja", ".txt"}


def prepare_resume(checkpoints: Path) -> tuple[Path | None, list[Path]]:
    """The newest whole checkpoint, and where half-written ones were set aside (`*.broken`)."""
    aside = [_set_aside(folder) for folder in half_written(checkpoints)]
    return max(_saved(checkpoints), key=step_of, default=None), aside


def half_written(checkpoints: Path) -> list[Path]:
    """Checkpoints of which something is missing."""
    return [folder for folder in _saved(checkpoints) if not is_complete(folder)]


def is_complete(folder: Path) -> bool:
    """Whether everything that training needs to go on is there, complete."""
    archives = [*folder.rglob("*.pt"), *folder.rglob("*.pth")]
    weights = list(folder.glob("*.safetensors"))
    return (
        _json(folder / _STATE).get("global_step") == step_of(folder)
        and bool(_json(folder / _PROCESSOR))
        and _has_optimizer(folder)
        and {path.name for path in weights} >= _shards(folder)
        and all(map(_is_whole_safetensors, weights))
        and all(map(zipfile.is_zipfile, archives))
    )


def step_of(folder: Path) -> int:
    """Optimizer steps behind a checkpoint."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else 0


def is_final(folder: Path) -> bool:
    """Whether no step is left to do after a whole checkpoint."""
    return step_of(folder) >= int(_json(folder / _STATE)["max_steps"])


def copy_model(checkpoint: Path, model: Path) -> None:
    """Put the model of a checkpoint, without what only its training needs, into a new folder."""
    model.mkdir(parents=True)
    for path in sorted(checkpoint.iterdir()):
        if path.suffix in _OF_A_MODEL and path.name != _STATE:
            shutil.copy2(path, model / path.name)


def _saved(checkpoints: Path) -> list[Path]:
    folders = checkpoints.iterdir() if checkpoints.is_dir() else ()
    return sorted(folder for folder in folders if _NAME.fullmatch(folder.name))


def _set_aside(folder: Path) -> Path:
    return folder.rename(next(path for path in _free_names(folder) if not path.exists()))


def _free_names(folder: Path) -> Iterator[Path]:
    yield folder.with_name(f"{folder.name}.broken")
    for number in range(2, 1_000_000):
        yield folder.with_name(f"{folder.name}.broken-{number}")


def _has_optimizer(folder: Path) -> bool:
    """A file, or with DeepSpeed a folder that `latest` names."""
    latest = folder / "latest"
    if latest.is_file():
        return (folder / (latest.read_text("utf-8").strip() or "?")).is_dir()
    return (folder / "optimizer.pt").is_file() and (folder / "scheduler.pt").is_file()


def _shards(folder: Path) -> set[str]:
    """Names of the files that hold the weights: of all of them, of shards, or of adapters."""
    index = _json(folder / "model.safetensors.index.json")
    if index:
        return set(index["weight_map"].values())
    adapter = (folder / "adapter_config.json").exists()
    return {"adapter_model.safetensors" if adapter else "model.safetensors"}


def _is_whole_safetensors(path: Path) -> bool:
    """Whether a file is as long as its header says."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > path.stat().st_size:
            return False
        try:
            header = json.loads(stream.read(length))
        except ValueError:
            return False
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return path.stat().st_size == 8 + length + max(ends, default=0)


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none, or half of one."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
