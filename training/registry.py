"""The registry of checkpoints: their folders, which version is in use, and the history of that.

A row of the table `checkpoints` describes a checkpoint; its folder has the weights. Decisions are
in a journal (`inference/backends/checkpoint/promotions.py`), from which the `status` of every row
follows: one that an interrupted command leaves is corrected by the next. A lock lets one process at
a time change a home's registry.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from inference.backends.checkpoint import manifest, promotions
from inference.backends.checkpoint.promotions import RegistryEvent
from schemas import FoundryError, StorageError
from schemas.training import CHECKPOINTS, CheckpointRow, CheckpointStatus
from warehouse import Home
from warehouse.atomic import remove
from warehouse.file_lock import exclusive_lock
from warehouse.garbage import Garbage
from warehouse.verify import Check, Damage, folder_checks

_LOCK_SECONDS = 60.0  # a change takes milliseconds, over a network seconds


@dataclass(frozen=True)
class CheckpointRegistry:
    """The checkpoints of a home."""

    home: Home

    def folder(self, name: str, version: str, area: str = "checkpoints") -> Path:
        """The folder of a checkpoint, which need not exist yet."""
        return manifest.checkpoint_folder(name, version, self.home, area)

    def job_folder(self, name: str, version: str) -> Path:
        """The working folder of a trainer: its own checkpoints and logs, from which it resumes."""
        return self.folder(name, version, "training")

    def collect_working_files(self, dry_run: bool = False) -> Iterator[Garbage]:
        """Remove what trainers of published checkpoints resumed from, but no logs and journals: of
        8 billion parameters some hundred GB. Without its checkpoint a training begins anew.
        """
        trainings = self.home.local.absolute() / "training"
        for folder in sorted(trainings.glob("*/*")):
            if not manifest.is_complete_folder(self.folder(folder.parent.name, folder.name)):
                continue  # it may be resumed
            entries = [*folder.glob("checkpoints/*"), *folder.glob("model*")]
            for path in [each for each in entries if each.suffix != ".jsonl"]:
                size = _own_bytes(path)
                if not dry_run:
                    remove(path)
                yield Garbage("trainer's checkpoint", str(path), size)

    def is_complete(self, name: str, version: str) -> bool:
        """Whether a version is registered and its folder complete."""
        registered = self.home.lake.exists(CHECKPOINTS, f"{name}-{version}")
        return registered and manifest.is_complete_folder(self.folder(name, version))

    def usable_folder(self, name: str, version: str) -> Path:
        """The folder of a registered version.

        Raises:
            CheckpointError: there is no such version, or its folder is incomplete.
        """
        return manifest.usable_folder(name, version, self.home)

    def rows(self, name: str | None = None) -> list[CheckpointRow]:
        """All checkpoints, or those of a name, oldest first."""
        return manifest.checkpoint_rows(self.home, name)

    def find(self, name: str, version: str) -> CheckpointRow:
        """A checkpoint; raises `CheckpointError` where there is none."""
        return manifest.find_checkpoint(name, version, self.home)

    def register(self, row: CheckpointRow) -> CheckpointRow:
        """Add a checkpoint whose folder is complete, or write its row again."""
        with self._locked():
            return self._write(row.model_copy(update={"status": self._statuses(row.name)(row)}))

    def history(self, name: str) -> list[RegistryEvent]:
        """All decisions about versions of a name, oldest first."""
        return promotions.history(self.home, name)

    def promoted(self, name: str) -> CheckpointRow | None:
        """The version in use; None where none is, or another checkpoint of its role."""
        version = promotions.versions_in_use(self.home, [name]).get(name)
        return self.find(name, version) if version else None

    def promote(self, name: str, version: str, why: str) -> CheckpointRow:
        """Put a version in use.

        Raises:
            CheckpointError: there is no such version, or its folder is incomplete.
        """
        self.promote_system({name: version}, why)
        return self.find(name, version)

    def promote_system(
        self, system: Mapping[str, str], why: str, means: Mapping[str, float] | None = None
    ) -> None:
        """Put the versions (by name) in use that are not yet, all in one change of the registry.

        `means`: what an evaluation of the system measured, by metric; None: it was not evaluated.

        Raises:
            CheckpointError: there is no such version, or its folder is incomplete.
        """
        evaluated = {"system": dict(system), "means": dict(means)} if means else {}
        with self._locked():
            for name, version in system.items():
                self.usable_folder(name, version)
            in_use = promotions.versions_in_use(self.home, system)
            if changed := dict(system.items() - in_use.items()):
                promotions.record(self.home, "promote", changed, why, **evaluated)
            for name, version in system.items():
                self._update_statuses(name, version)

    def reject(self, name: str, version: str, why: str) -> CheckpointRow:
        """Mark a candidate as worse than the version in use."""
        with self._locked():
            self.find(name, version)
            promotions.record(self.home, "reject", {name: version}, why)
            return self._update_statuses(name, version)

    def roll_back(self, name: str, why: str) -> CheckpointRow:
        """Return to what was in use of its role before; the current version becomes rejected.

        Versions that were rolled back are not returned to, unless they were promoted again.

        Raises:
            CheckpointError: it is not in use, no other version was before, or that no longer
                exists.
        """
        with self._locked():
            stack = promotions.promoted_in_order(self.home, name)
            current = stack[-1] if stack else None
            if current and current.name != name:
                raise manifest.CheckpointError(
                    f"{name} is not in use, {current.name} is: `interleave rollback {current.name}`"
                )
            before = [each for each in stack if each != current]
            if not current or not before:
                now = f"before {current.version}" if current else "yet"
                raise manifest.CheckpointError(
                    f"{name}: no version was promoted {now}, so there is none to roll back to; "
                    "`interleave checkpoints` lists what there is"
                )
            self.usable_folder(*before[-1])
            promotions.record(self.home, "roll_back", {name: current.version}, why)
            return self._update_statuses(*before[-1])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self.home.local / "registry.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        busy = f"the registry of {self.home.root} is being changed by another process: try again"
        with exclusive_lock(path, StorageError(busy), _LOCK_SECONDS):
            yield

    def _update_statuses(self, name: str, version: str) -> CheckpointRow:
        """Write the statuses of the history, `version` first so that one is always in use."""
        names = promotions.names_of_role(name)
        rows = [row for row in self.rows() if row.name in names]
        status_of = self._statuses(name)
        for row in sorted(rows, key=lambda row: (row.name, row.version) != (name, version)):
            if row.status != (status := status_of(row)):
                self._write(row.model_copy(update={"status": status}))
        return self.find(name, version)

    def _statuses(self, name: str) -> Callable[[CheckpointRow], CheckpointStatus]:
        """The statuses of the checkpoints of a role, as the history has them."""
        last = promotions.promoted_in_order(self.home, name)[-1:]
        histories = {each: self.history(each) for each in promotions.names_of_role(name)}

        def status(row: CheckpointRow) -> CheckpointStatus:
            if last == [(row.name, row.version)]:
                return "promoted"
            events = [e for e in histories[row.name] if e.version == row.version]
            is_out = bool(events) and events[-1].action in ("reject", "roll_back")
            return "rejected" if is_out else "candidate"

        return status

    def _write(self, row: CheckpointRow) -> CheckpointRow:
        self.home.lake.write(CHECKPOINTS, [row], f"{row.name}-{row.version}")
        return row


def _own_bytes(path: Path) -> int:
    """Bytes that go with a file or folder: not those of files that a checkpoint links as well."""
    stats = [each.lstat() for each in (path, *path.rglob("*")) if not each.is_dir()]
    return sum(stat.st_size for stat in stats if stat.st_nlink == 1)


def checkpoint_checks(home: Home) -> Iterator[Check]:
    """A check a file of every checkpoint."""
    registry = CheckpointRegistry(home)
    folders = set(home.local.absolute().glob("checkpoints/*/[!.]*"))
    with suppress(FoundryError):  # a damaged table is a finding of its own
        folders |= {registry.folder(row.name, row.version) for row in registry.rows()}
    for folder in sorted(folders):
        yield from folder_checks("checkpoint", folder, partial(_damage, folder))


def _damage(folder: Path, name: str, problem: str) -> Damage:
    remedy = (
        f"restore it from a copy, or move {folder} away and "
        f"`interleave run --select {folder.parent.name}` trains it again"
    )
    return Damage("checkpoint", str(folder / name), problem, remedy)
