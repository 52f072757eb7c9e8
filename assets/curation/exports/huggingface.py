"""Parquet with embedded images as `datasets` reads it, a configuration per table, and back.

`datasets` itself writes the schema metadata that it reads, so images and messages arrive as
features, offline and without code of this project.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from schemas import FoundryError, Table
from schemas.curation import CRITIC_DPO, CRITIC_RL, CRITIC_SFT, PLANNER_SFT, SEQUENCES
from schemas.prompts import PROMPTS
from warehouse import EncodedImage, ImageStore
from warehouse.parted_files import ParquetRows

from ..set_columns import image_columns, images_of
from ..settings import ExportSettings
from .folder import ExportFolder

TABLES = (CRITIC_SFT, CRITIC_RL, CRITIC_DPO, PLANNER_SFT, SEQUENCES, PROMPTS)
_BATCH = 256  # rows with embedded images in memory


def write_huggingface(folder: ExportFolder, settings: ExportSettings) -> dict[str, int]:
    """Every table as `data/<table>/train-*.parquet`; rows by table."""
    return {table.name: _write_table(folder, table, settings.rows_per_file) for table in TABLES}


def _write_table(folder: ExportFolder, table: Table, rows_per_file: int) -> int:
    plain = _plain_columns(table)
    schema, data = datasets_schema({**plain, "images": None}), f"data/{table.name}"
    (folder.path / data).mkdir(parents=True)

    def embedded(row: dict[str, Any]) -> dict[str, Any]:
        images = [embedded_image(folder.home.images, sha256) for sha256 in images_of(row)]
        return {**{name: row[name] for name in plain}, "images": images}

    count = 0
    parts = _split_rows(map(embedded, folder.rows(table)), rows_per_file)
    for number, part in enumerate(parts):
        file = ParquetRows(folder.path / data / f"train-{number:05d}.parquet", schema)
        for row in part:
            file.add(row)
            count += 1
        file.close()
    return count


def _plain_columns(table: Table) -> dict[str, pa.DataType]:
    return {f.name: f.type for f in table.arrow_schema if f.name not in image_columns(table)}


def _split_rows(rows: Iterator[dict[str, Any]], size: int) -> Iterator[Iterator[dict[str, Any]]]:
    """Parts of `size` rows; at least one part, so that an empty table has a file."""
    yield islice(rows, size)
    for first in rows:
        yield chain([first], islice(rows, size - 1))


def embedded_image(images: ImageStore, sha256: str) -> dict[str, Any]:
    """An image as `datasets` stores it in Parquet; BadImageError if it is missing or damaged."""
    return {"bytes": images.get(sha256).data, "path": f"{sha256}.png"}


def datasets_schema(fields: Mapping[str, pa.DataType | None]) -> pa.Schema:
    """Arrow schema of columns (None: a list of images) with the metadata of `datasets`."""
    from datasets import Features, Image, List

    plain = [(name, kind) for name, kind in fields.items() if kind is not None]
    features = Features.from_arrow_schema(pa.schema(plain))
    return Features({name: features.get(name) or List(Image()) for name in fields}).arrow_schema


def card_header(folder: ExportFolder, counts: Mapping[str, int]) -> dict[str, Any]:
    """Configurations and sizes for the card's YAML header, from which `load_dataset` works.

    Empty tables are left out, because `datasets` cannot open a split without rows.
    """
    names = [name for name, count in counts.items() if count]
    paths = {name: f"data/{name}/train-*.parquet" for name in names}
    return {
        "configs": [
            {"config_name": name, "data_files": [{"split": "train", "path": path}]}
            for name, path in paths.items()
        ],
        "dataset_info": [
            _sizes(name, counts[name], sorted(folder.path.glob(path)))
            for name, path in paths.items()
        ],
        "size_categories": [_size_category(sum(counts.values()))],
    }


def _sizes(name: str, rows: int, files: list[Path]) -> dict[str, Any]:
    """Entry of `dataset_info`: rows, bytes of the files, and bytes before compression."""
    groups = [
        metadata.row_group(number).total_byte_size
        for metadata in map(pq.read_metadata, files)
        for number in range(metadata.num_row_groups)
    ]
    return {
        "config_name": name,
        "splits": [{"name": "train", "num_bytes": sum(groups), "num_examples": rows}],
        "download_size": sum(file.stat().st_size for file in files),
        "dataset_size": sum(groups),
    }


def _size_category(rows: int) -> str:
    """The Hub's name of a size."""
    steps = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}
    return next((name for limit, name in steps.items() if rows < limit), "1M<n<10M")


def yaml_header(content: Mapping[str, Any]) -> str:
    """The header of a README.md, as the Hub reads it."""
    return f"---\n{yaml.safe_dump(dict(content), sort_keys=False)}---\n\n"


def read_table(table: Table, files: Iterable[Path], images: ImageStore) -> pa.RecordBatchReader:
    """The rows of exported files, as they were in the lake; their images are put into the store.

    Raises (while it is read):
        BadImageError: an image cannot be decoded.
        FoundryError: a file is damaged or has other columns, or an image is not the one that its
            row names.
    """
    batches = (batch for file in files for batch in _read_batches(file, table, images))
    return pa.RecordBatchReader.from_batches(table.arrow_schema, batches)


def _read_batches(file: Path, table: Table, images: ImageStore) -> Iterator[pa.RecordBatch]:
    missing = {*_plain_columns(table), "images"}.difference(pq.read_schema(file).names)
    if missing:
        raise FoundryError(
            f"{file} has no column {', '.join(sorted(missing))}: it was written by another "
            "version of Interleave Foundry"
        )
    for batch in pq.ParquetFile(file).iter_batches(_BATCH):
        rows = [_stored_row(row, table, images, file) for row in batch.to_pylist()]
        yield from pa.Table.from_pylist(rows, schema=table.arrow_schema).to_batches()


def _stored_row(
    row: dict[str, Any], table: Table, images: ImageStore, file: Path
) -> dict[str, Any]:
    """The row with the hashes of its images, which are stored, in the table's own columns."""
    hashes = [_store(image, images, file) for image in row.pop("images")]
    columns = image_columns(table)
    if len(columns) == 1:
        return {**row, columns[0]: hashes}
    return {**row, **dict(zip(columns, hashes, strict=True))}


def _store(image: Mapping[str, Any], images: ImageStore, file: Path) -> str:
    data, name = image["bytes"], Path(image["path"]).stem
    if hashlib.sha256(data).hexdigest() != name:
        raise FoundryError(f"{file}: image {name} has other bytes than its name says")
    return images.put(EncodedImage(data))
