"""Checkpoints as repositories of the Hub: their folders, and registered copies of pulled ones."""

from pathlib import Path

from pydantic import ValidationError

from inference.backends.checkpoint.manifest import (
    RECORD,
    CheckpointError,
    is_complete_folder,
    newest,
    read_manifest,
)
from schemas import FoundryError
from schemas.errors import first_problem
from schemas.training import CheckpointRow
from training.registry import CheckpointRegistry
from warehouse import Home
from warehouse.atomic import atomic_path
from warehouse.checksums import write_sums

from ..checkpoints.training import TrainingRecord, checkpoint_row, link_file


def checkpoint_files(home: Home, reference: str) -> tuple[str, dict[str, Path]]:
    """`name@version` of a checkpoint, and its files by name: weights, model card, manifest.

    Args:
        reference: `name@version`, or a name: its promoted version, else its newest.

    Raises:
        CheckpointError: there is none, or its folder is incomplete.
    """
    identity = reference if "@" in reference else newest(reference, home)
    if identity is None:
        raise CheckpointError(
            f"no checkpoint {reference} in {home.root}; `interleave checkpoints` lists all"
        )
    name, _, version = identity.partition("@")
    folder = CheckpointRegistry(home).usable_folder(name, version)
    return identity, {each: folder / each for each in (*_record(folder).files, RECORD)}


def register_checkpoint(home: Home, folder: Path, source: str) -> CheckpointRow:
    """Register a pulled folder under its own `name@version`, as a candidate; its row.

    Files are linked. A version that is registered already stays as it is.

    Raises:
        CheckpointError: the folder is no complete checkpoint of this project.
    """
    manifest, record = read_manifest(folder), _record(folder)
    if not is_complete_folder(folder):
        raise CheckpointError(f"{folder} lacks files of its {RECORD}: pull again")
    registry = CheckpointRegistry(home)
    target = registry.folder(manifest.name, manifest.version)
    if registry.is_complete(manifest.name, manifest.version):
        return registry.find(manifest.name, manifest.version)
    record = record.model_copy(update={"source": source})
    try:
        with atomic_path(target) as draft:
            draft.mkdir()
            for name in record.files:
                link_file(folder / name, draft / name)
            (draft / RECORD).write_text(record.model_dump_json(indent=1), "utf-8")
            write_sums(draft)
    except OSError as error:
        raise FoundryError(f"{target} cannot be written: {error.strerror or error}") from error
    return registry.register(checkpoint_row(manifest.name, manifest.version, target, record))


def _record(folder: Path) -> TrainingRecord:
    path = folder / RECORD
    try:
        record = TrainingRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{folder} is not a checkpoint: there is no {RECORD} in it"
        ) from error
    except ValidationError as error:
        raise CheckpointError(f"{path}: {first_problem(error)}") from error
    if outside := [name for name in record.files if Path(name).name != name]:
        raise CheckpointError(f"{path} names {outside[0]!r}, which is not a file beside it")
    return record
