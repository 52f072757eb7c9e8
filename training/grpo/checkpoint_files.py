"""verl's checkpoints on disk: which are whole, which one training goes on from.

verl writes `global_step_N/actor/*.pt`, then `global_step_N/data.pt`, then the number N into
`latest_checkpointed_iteration.txt`; a process killed in between leaves a part of that.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

_TRACKER = "latest_checkpointed_iteration.txt"
_STEP = re.compile(r"global_step_(\d+)")


def prepare_resume(checkpoints: Path) -> tuple[int, list[Path]]:
    """Make verl go on from the newest whole checkpoint.

    Returns:
        Its step, 0 where there is none, and where half-written ones were set aside
        (`global_step_N.broken`).
    """
    aside = [_set_aside(folder) for _, folder in _saved(checkpoints) if not _is_whole(folder)]
    newest = max((step for step, _ in _saved(checkpoints)), default=0)
    tracker = checkpoints / _TRACKER
    if newest:
        draft = tracker.with_suffix(".partial")
        draft.write_text(str(newest), "utf-8")
        draft.replace(tracker)
    else:
        tracker.unlink(missing_ok=True)
    return newest, aside


def actor(checkpoints: Path, step: int) -> Path:
    """The policy's part of a checkpoint."""
    return checkpoints / f"global_step_{step}" / "actor"


def _saved(checkpoints: Path) -> list[tuple[int, Path]]:
    folders = checkpoints.iterdir() if checkpoints.is_dir() else ()
    found = ((_STEP.fullmatch(folder.name), folder) for folder in folders)
    return sorted((int(match[1]), folder) for match, folder in found if match)


def _is_whole(folder: Path) -> bool:
    """Whether the last file is there, and every archive has its directory, which is its end."""
    archives = [*folder.glob("actor/*.pt"), folder / "data.pt"]
    kinds = {path.name.split("_")[0] for path in archives}
    return {"model", "optim", "extra"} <= kinds and all(map(zipfile.is_zipfile, archives))


def _set_aside(folder: Path) -> Path:
    broken = next(path for path in _names(folder) if not path.exists())
    return folder.rename(broken)


def _names(folder: Path) -> Iterator[Path]:
    yield folder.with_name(f"{folder.name}.broken")
    for number in range(2, 1_000_000):
        yield folder.with_name(f"{folder.name}.broken-{number}")
