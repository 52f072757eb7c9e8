"""What repositories of the Hub hold: checkpoints, and the training sets as export `huggingface`."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow.compute as pc
from pydantic import ValidationError

from inference.backends.checkpoint.manifest import (
    RECORD,
    CheckpointError,
    is_complete_folder,
    newest,
    read_manifest,
)
from schemas import FoundryError, Table
from schemas.errors import first_problem
from schemas.training import CheckpointRow
from training.registry import CheckpointRegistry
from warehouse import Home
from warehouse.atomic import atomic_path
from warehouse.verify import file_sha256, write_sums

from ..checkpoints.training import TrainingRecord, checkpoint_row, link_file
from ..curation.exports.folder import read_card
from ..curation.exports.huggingface import TABLES, read_table
from ..curation.exports.publisher import export
from ..curation.settings import CurationSettings
from ..curation.sources import table_hash

_FORMAT = "huggingface"


def checkpoint_files(home: Home, reference: str) -> tuple[str, dict[str, Path]]:
    """`name@version` of a checkpoint, and its files by name: weights, model card, manifest.

    `reference`: `name@version`, or a name: its promoted version, else its newest.

    Raises CheckpointError: there is none, or its folder is incomplete.
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

    Raises CheckpointError: the folder is no complete checkpoint of this project.
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


def training_sets(home: Home, settings: CurationSettings) -> dict[str, Path]:
    """Files of the newest export, by their path in it.

    Raises FoundryError: there is no row, or what `export` raises.
    """
    card, folder = export(home, settings, _FORMAT), home.exports / _FORMAT
    if not any(card.counts.values()):
        raise FoundryError(f"{home.root} has no training sets yet: `interleave run` makes them")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in files}


def store_training_sets(home: Home, folder: Path, replace: bool) -> dict[str, int]:
    """Write a pulled folder's rows and images to the lake; rows by table.

    Tables that have these rows already stay untouched, so that a killed pull can be repeated.

    `replace`: other rows of the same tables are removed; else they are an error.

    Raises FoundryError: the folder is no export of training sets, or damaged; or tables have other
    rows, in which case nothing is written.
    """
    card = read_card(folder)
    if card.get("name") != _FORMAT:
        raise FoundryError(f"{folder} has no training sets of Interleave Foundry (card.json)")
    _check_files(folder, card["files"])
    # Not what else is in the folder, such as files of an earlier pull.
    files = {
        table: [folder / name for name in sorted(card["files"]) if _is_of(table, name)]
        for table in TABLES
    }
    changed = [
        table
        for table, parts in files.items()
        if parts and table_hash(home, table) != card["tables"].get(table.name)
    ]
    if not replace:
        _require_empty(home, changed)
    for table in changed:
        _write(home, table, files[table])
    return {table.name: home.lake.rows(table) for table, parts in files.items() if parts}


def _is_of(table: Table, name: str) -> bool:
    return name.startswith(f"data/{table.name}/") and name.endswith(".parquet")


def _check_files(folder: Path, hashes: dict[str, str]) -> None:
    """Raises FoundryError: a file is missing, or has other bytes than the card says."""
    for name, expected in hashes.items():
        path = folder / name
        if not path.is_file():
            raise FoundryError(f"{path} is missing: pull again")
        if file_sha256(path) != expected:
            raise FoundryError(f"{path} is not the file that card.json names: push the sets again")


def _require_empty(home: Home, tables: Iterable[Table]) -> None:
    filled = [table.name for table in tables if home.lake.rows(table)]
    if filled:
        raise FoundryError(
            f"{home.root} has other rows in {', '.join(filled)}: pull into another home (--home), "
            "or replace them (--replace)"
        )


def _write(home: Home, table: Table, files: list[Path]) -> None:
    rows = read_table(table, files, home.images)
    if not table.sharded:
        home.lake.write(table, rows)
        return
    data = rows.read_all()
    shards = pc.unique(data["shard"]).to_pylist()
    for shard in shards:
        home.lake.write(table, data.filter(pc.field("shard") == shard), shard)
    for shard in set(home.lake.partitions(table)) - set(shards):
        home.lake.delete(table, shard)
