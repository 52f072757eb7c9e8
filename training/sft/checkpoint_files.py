"""LLaMA-Factory's checkpoints on disk: which are complete, which one training resumes from.

It writes weights, optimizer and random state first, then `trainer_state.json`, then the processor,
into `checkpoint-N`; a process killed in between leaves a part of that. LLaMA-Factory itself resumes
from the newest folder, so half-written ones must be moved away.
"""

import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

from ..trainer_output import checkpoints_by_step, quarantine_incomplete

_NAME = re.compile(r"checkpoint-(\d+)")
_STATE = "trainer_state.json"
_PROCESSOR = "processor_config.json"
_MODEL_SUFFIXES = {".safetensors", ".json", ".jinja", ".txt"}


def prepare_resume(checkpoints: Path) -> tuple[Path | None, list[Path]]:
    """The newest complete checkpoint, and where half-written ones were moved (`*.broken`)."""
    broken = quarantine_incomplete(checkpoints, _NAME, is_complete)
    complete = list(checkpoints_by_step(checkpoints, _NAME).values())
    return (complete[-1] if complete else None), broken


def is_complete(folder: Path) -> bool:
    """Whether every file that resuming needs is there, complete."""
    archives = [*folder.rglob("*.pt"), *folder.rglob("*.pth")]
    weights = list(folder.glob("*.safetensors"))
    return (
        _read_json(folder / _STATE).get("global_step") == step_of(folder)
        and bool(_read_json(folder / _PROCESSOR))
        and _has_optimizer(folder)
        and {path.name for path in weights} >= _weight_files(folder)
        and all(map(_is_complete_safetensors, weights))
        and all(map(zipfile.is_zipfile, archives))
    )


def step_of(folder: Path) -> int:
    """Optimizer steps behind a checkpoint."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else 0


def is_final(folder: Path) -> bool:
    """Whether no step follows a complete checkpoint."""
    return step_of(folder) >= int(_read_json(folder / _STATE)["max_steps"])


def copy_model(checkpoint: Path, model: Path) -> None:
    """Copy a checkpoint's model, without what only training needs, into a new folder."""
    model.mkdir(parents=True)
    for path in sorted(checkpoint.iterdir()):
        if path.suffix in _MODEL_SUFFIXES and path.name != _STATE:
            shutil.copy2(path, model / path.name)


def _has_optimizer(folder: Path) -> bool:
    """A file, or with DeepSpeed a folder that `latest` names."""
    latest = folder / "latest"
    if latest.is_file():
        return (folder / (latest.read_text("utf-8").strip() or "?")).is_dir()
    return (folder / "optimizer.pt").is_file() and (folder / "scheduler.pt").is_file()


def _weight_files(folder: Path) -> set[str]:
    """Names of the files with the weights: all shards, or the one file, or the adapters'."""
    index = _read_json(folder / "model.safetensors.index.json")
    if index:
        return set(index["weight_map"].values())
    adapter = (folder / "adapter_config.json").exists()
    return {"adapter_model.safetensors" if adapter else "model.safetensors"}


def _is_complete_safetensors(path: Path) -> bool:
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


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty where the file is missing or cut off."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
