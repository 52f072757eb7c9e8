"""The registry of checkpoints: where they are, which one is in use, and how it came to be.

A row of the table `checkpoints` describes a checkpoint; its folder holds the weights. What was
promoted, rejected and rolled back is an append-only journal per name, from which the `status` of
every row follows: an interrupted command leaves at worst a status that the next one puts right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import orjson

from schemas import FoundryError
from schemas.training import CHECKPOINTS, CheckpointRow, CheckpointStatus
from warehouse import Home
from warehouse.storage import safe_name

ABOUT = "interleave.json"  # how a checkpoint's model wants to be asked
RECORD = "training.json"  # what its training came to, and the `files` of the folder
Action = Literal["promote", "reject", "roll_back"]


class RegistryError(FoundryError):
    """There is no such checkpoint, or it cannot be used as asked."""


@dataclass(frozen=True)
class RegistryEvent:
    """Something that was decided about a version."""

    action: Action
    version: str
    at: datetime
    why: str


class CheckpointRegistry:
    """The checkpoints of a home."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def folder(self, name: str, version: str) -> Path:
        """Where a checkpoint is, or will be."""
        return self._below("checkpoints", name, version)

    def job_folder(self, name: str, version: str) -> Path:
        """Where a trainer works: its own checkpoints and logs, from which it resumes."""
        return self._below("training", name, version)

    def whole(self, name: str, version: str) -> bool:
        """Whether a version is registered and its folder complete."""
        registered = self.home.lake.exists(CHECKPOINTS, partition_of(name, version))
        return registered and is_complete(self.folder(name, version))

    def rows(self, name: str | None = None) -> list[CheckpointRow]:
        """All checkpoints, or those of a name, oldest first."""
        stored = self.home.lake.read(CHECKPOINTS).to_pylist()
        rows = [CheckpointRow.model_validate(row) for row in stored]
        mine = [row for row in rows if name in (None, row.name)]
        return sorted(mine, key=lambda row: (row.created_at, row.version))

    def find(self, name: str, version: str) -> CheckpointRow:
        """A checkpoint.

        Raises:
            CheckpointError: there is none of this name and version.
        """
        rows = self.rows()
        for row in rows:
            if (row.name, row.version) == (name, version):
                return row
        known = ", ".join(f"{row.name} {row.version}" for row in rows) or "none yet"
        raise RegistryError(f"no checkpoint {name} {version}; there are: {known}")

    def register(self, row: CheckpointRow) -> CheckpointRow:
        """Add a checkpoint whose folder is whole, or put its row down again."""
        status = _status(row.version, self.history(row.name))
        return self._write(row.model_copy(update={"status": status}))

    def history(self, name: str) -> list[RegistryEvent]:
        """Everything that was decided about versions of a name, oldest first."""
        records = self.home.journal("promotions", name).records()
        return [RegistryEvent(**{**r, "at": datetime.fromisoformat(r["at"])}) for r in records]

    def promoted(self, name: str) -> CheckpointRow | None:
        """The version in use; None before any was promoted."""
        if stack := _in_use(self.history(name)):
            return self.find(name, stack[-1])
        return None

    def promote(self, name: str, version: str, why: str) -> CheckpointRow:
        """Put a version in use.

        Raises:
            CheckpointError: there is no such version, or its folder is incomplete.
        """
        self._usable(name, version)
        if _in_use(self.history(name))[-1:] != [version]:
            self._decide(name, "promote", version, why)
        return self._settle(name, version)

    def reject(self, name: str, version: str, why: str) -> CheckpointRow:
        """Mark a candidate as worse than the version in use."""
        self.find(name, version)
        self._decide(name, "reject", version, why)
        return self._settle(name, version)

    def roll_back(self, name: str, why: str) -> CheckpointRow:
        """Put the version in use again that was before this one, which becomes rejected.

        Raises:
            CheckpointError: no other version was in use before, or it is not there any more.
        """
        stack = _in_use(self.history(name))
        if len(stack) < 2:
            now = f"before {stack[-1]}" if stack else "yet"
            raise RegistryError(
                f"{name}: no version was promoted {now}, so there is none to roll back to; "
                "`interleave checkpoints` lists what there is"
            )
        self._usable(name, stack[-2])
        self._decide(name, "roll_back", stack[-1], why)
        return self._settle(name, stack[-2])

    def _usable(self, name: str, version: str) -> None:
        self.find(name, version)
        if not is_complete(self.folder(name, version)):
            raise RegistryError(
                f"{name} {version}: {self.folder(name, version)} is incomplete; run "
                f"`interleave run --select {name}` to make it again"
            )

    def _decide(self, name: str, action: Action, version: str, why: str) -> None:
        record = {"action": action, "version": version, "at": _now().isoformat(), "why": why}
        with self.home.journal("promotions", name) as journal:
            journal.append(record)

    def _settle(self, name: str, version: str) -> CheckpointRow:
        """Statuses as the history says, `version` first so that one is always in use."""
        history = self.history(name)
        for row in sorted(self.rows(name), key=lambda row: row.version != version):
            status = _status(row.version, history)
            if row.status != status:
                self._write(row.model_copy(update={"status": status}))
        return self.find(name, version)

    def _write(self, row: CheckpointRow) -> CheckpointRow:
        self.home.lake.write(CHECKPOINTS, [row], partition_of(row.name, row.version))
        return row

    def _below(self, place: str, name: str, version: str) -> Path:
        parts = safe_name(name, "checkpoint"), safe_name(version, "version")
        return self.home.local.absolute().joinpath(place, *parts)


def partition_of(name: str, version: str) -> str:
    """Partition of a checkpoint's row."""
    return f"{name}-{version}"


def is_complete(folder: Path) -> bool:
    """Whether every file of a checkpoint's folder is there, also what it links to."""
    try:
        files = orjson.loads((folder / RECORD).read_bytes())["files"]
    except (OSError, orjson.JSONDecodeError, KeyError):
        return False
    return all((folder / name).exists() for name in files)


def _in_use(history: Sequence[RegistryEvent]) -> list[str]:
    """Versions that were put in use and not rolled back, the present one last."""
    stack: list[str] = []
    for event in history:
        if event.action == "promote":
            stack.append(event.version)
        if event.action == "roll_back" and stack:
            stack.pop()
    return stack


def _status(version: str, history: Sequence[RegistryEvent]) -> CheckpointStatus:
    if _in_use(history)[-1:] == [version]:
        return "promoted"
    last = [event.action for event in history if event.version == version][-1:]
    return "rejected" if last in (["reject"], ["roll_back"]) else "candidate"


def _now() -> datetime:
    return datetime.now(UTC)
