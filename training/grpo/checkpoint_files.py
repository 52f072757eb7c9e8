"""verl's checkpoints on disk: which are complete, which one training resumes from.

verl writes `global_step_N/actor/*.pt`, then `global_step_N/data.pt`, then the number N into
`latest_checkpointed_iteration.txt`; a process killed in between leaves a part of that.
"""

import re
import zipfile
from pathlib import Path

from warehouse.atomic import atomic_write

from ..trainer_output import checkpoints_by_step, quarantine_incomplete

_TRACKER = "latest_checkpointed_iteration.txt"
_NAME = re.compile(r"global_step_(\d+)")


def prepare_resume(checkpoints: Path) -> tuple[int, list[Path]]:
    """Make verl resume from the newest complete checkpoint.

    Returns:
        Its step, 0 where there is none, and where half-written ones were moved
        (`global_step_N.broken`).
    """
    broken = quarantine_incomplete(checkpoints, _NAME, _is_complete)
    newest = max(checkpoints_by_step(checkpoints, _NAME), default=0)
    tracker = checkpoints / _TRACKER
    if newest:
        atomic_write(tracker, str(newest))
    else:
        tracker.unlink(missing_ok=True)
    return newest, broken


def actor_folder(checkpoints: Path, step: int) -> Path:
    """The policy's part of a checkpoint."""
    return checkpoints / f"global_step_{step}" / "actor"


def _is_complete(folder: Path) -> bool:
    """Whether the last file is there, and every archive has its directory, which is its end."""
    archives = [*folder.glob("actor/*.pt"), folder / "data.pt"]
    kinds = {path.name.split("_")[0] for path in archives}
    return {"model", "optim", "extra"} <= kinds and all(map(zipfile.is_zipfile, archives))
