"""Damage of checkpoints: files by the hashes of `SHA256SUMS`, written when they were published."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from inference.backends.checkpoint.manifest import recorded_files
from schemas import FoundryError
from warehouse import Home
from warehouse.checksums import SUMS_FILE, differing_files, read_sums
from warehouse.verify import Check, Damage

from .registry import CheckpointRegistry


def checkpoint_checks(home: Home) -> Iterator[Check]:
    """A check a file of every checkpoint; without sums, that each exists."""
    registry = CheckpointRegistry(home)
    folders = set(home.local.absolute().glob("checkpoints/*/*"))
    with suppress(FoundryError):  # a damaged table is a finding of its own
        folders |= {registry.folder(row.name, row.version) for row in registry.rows()}
    for folder in sorted(folder for folder in folders if not folder.name.startswith(".")):
        yield from _folder_checks(folder)


def _folder_checks(folder: Path) -> Iterator[Check]:
    try:
        sums = read_sums(folder)
    except ValueError as error:
        damage = _damage(folder, SUMS_FILE, str(error))
        yield Check("checkpoint", damage.file, lambda: [damage])
        return
    if sums is None:
        yield Check("checkpoint", str(folder), partial(_missing, folder))
    for name, digest in (sums or {}).items():
        find = partial(_verify, folder, name, digest)
        yield Check("checkpoint", str(folder / name), find)


def _verify(folder: Path, name: str, digest: str) -> list[Damage]:
    return [_damage(folder, *found) for found in differing_files(folder, {name: digest})]


def _missing(folder: Path) -> list[Damage]:
    names = recorded_files(folder)
    if names is None:
        return [_damage(folder, "", "is incomplete: it has no readable training.json")]
    return [_damage(folder, n, "is missing") for n in names if not (folder / n).exists()]


def _damage(folder: Path, name: str, problem: str) -> Damage:
    remedy = (
        f"restore it from a copy, or move {folder} away and "
        f"`interleave run --select {folder.parent.name}` trains it again"
    )
    return Damage("checkpoint", str(folder / name), problem, remedy)
