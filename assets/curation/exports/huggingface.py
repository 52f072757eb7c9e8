"""Sets as `datasets` reads them: Parquet with embedded images, and back; and WebDataset.

`datasets` itself writes the schema metadata that it reads, so images and messages arrive as
features, offline and without code of this project. WebDataset is tar files to be streamed, whose
samples are a JSON file and PNG images with one key.
"""

import hashlib
import io
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from schemas import FoundryError, Table
from schemas.curation import CRITIC_DPO, CRITIC_RL, CRITIC_SFT, PLANNER_SFT, SEQUENCES
from schemas.prompts import PROMPTS
from warehouse import EncodedImage, ImageStore
from warehouse.parted_files import ParquetRows

from ..settings import ExportSettings
from ..sources import image_columns, images_of
from .folder import ExportFolder

WEBDATASET_TABLES = (CRITIC_SFT, CRITIC_RL, CRITIC_DPO, PLANNER_SFT, SEQUENCES)
TABLES = (*WEBDATASET_TABLES, PROMPTS)
_BATCH = 256  # rows with embedded images in memory


def write_huggingface(folder: ExportFolder, settings: ExportSettings) -> dict[str, int]:
    """Every table as `data/<table>/train-*.parquet`; rows by table."""
    return {table.name: _write_table(folder, table, settings.rows_per_file) for table in TABLES}


def _write_table(folder: ExportFolder, table: Table, rows_per_file: int) -> int:
    """At least one file, also of an empty table."""
    plain = _plain_columns(table)
    schema, data = datasets_schema({**plain, "images": None}), folder.path / "data" / table.name
    data.mkdir(parents=True)
    count, file = 0, ParquetRows(data / "train-00000.parquet", schema)
    for row in folder.rows(table):
        number, position = divmod(count, rows_per_file)
        if count and position == 0:
            file.close()
            file = ParquetRows(data / f"train-{number:05d}.parquet", schema)
        images = [embedded_image(folder.home.images, sha256) for sha256 in images_of(row)]
        file.add({**{name: row[name] for name in plain}, "images": images})
        count += 1
    file.close()
    return count


def _plain_columns(table: Table) -> dict[str, pa.DataType]:
    return {f.name: f.type for f in table.arrow_schema if f.name not in image_columns(table)}


def embedded_image(images: ImageStore, sha256: str) -> dict[str, Any]:
    """An image as `datasets` stores it in Parquet; BadImageError if it is missing or damaged."""
    return {"bytes": images.get(sha256).data, "path": f"{sha256}.png"}


def datasets_schema(fields: Mapping[str, pa.DataType | None]) -> pa.Schema:
    """Arrow schema of columns (None: a list of images) with the metadata of `datasets`."""
    from datasets import Features, Image, List

    plain = [(name, kind) for name, kind in fields.items() if kind is not None]
    features = Features.from_arrow_schema(pa.schema(plain))
    return Features({name: features.get(name) or List(Image()) for name in fields}).arrow_schema


def card_header(counts: Mapping[str, int]) -> dict[str, Any]:
    """Configurations for the card's YAML header, from which `load_dataset` works.

    Empty tables are left out, because `datasets` cannot open a split without rows.
    """
    files = {name: f"data/{name}/train-*.parquet" for name, count in counts.items() if count}
    return {
        "configs": [
            {"config_name": name, "data_files": [{"split": "train", "path": path}]}
            for name, path in files.items()
        ]
    }


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


def write_webdataset(folder: ExportFolder, settings: ExportSettings) -> dict[str, int]:
    """Every table as `TABLE/N-images-SHARD.tar`; samples by configuration `TABLE_N_images`.

    A sample is `KEY.json`, the row without its images, and `KEY.0.png`, `KEY.1.png` ...
    """
    counts: dict[str, int] = {}
    for table in WEBDATASET_TABLES:
        counts |= _write_samples(folder, table, settings.rows_per_file)
    return counts


def _write_samples(folder: ExportFolder, table: Table, rows_per_file: int) -> dict[str, int]:
    counts: Counter[int] = Counter()  # by number of images
    files: dict[int, tarfile.TarFile] = {}
    (folder.path / table.name).mkdir()
    try:
        for row in folder.rows(table):
            images = images_of(row)
            number, prefix = len(images), f"{len(images)}-images"
            shard, position = divmod(counts[number], rows_per_file)
            if position == 0:
                if number in files:
                    files[number].close()
                path = folder.path / table.name / f"{prefix}-{shard:05d}.tar"
                files[number] = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
            plain = {n: value for n, value in row.items() if n not in image_columns(table)}
            _add(files[number], f"{prefix}-{counts[number]:08d}.json", orjson.dumps(plain))
            for index, sha256 in enumerate(images):
                data = folder.home.images.get(sha256).as_png.data
                _add(files[number], f"{prefix}-{counts[number]:08d}.{index}.png", data)
            counts[number] += 1
    finally:
        for file in files.values():
            file.close()
    return {f"{table.name}_{number}_images": count for number, count in counts.items()}


def _add(file: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    file.addfile(entry, io.BytesIO(data))


def webdataset_header(counts: Mapping[str, int]) -> dict[str, Any]:
    """Configurations with their features, which `datasets` would guess from a few samples.

    Samples with as many images share a configuration and its files, since `datasets` needs the same
    files in every sample of one; `webdataset` itself reads all files of a table together.
    """
    from datasets import DatasetInfo
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    infos, configs = DatasetInfosDict(), []
    for table in WEBDATASET_TABLES:
        for name in (name for name in counts if name.startswith(f"{table.name}_")):
            number = int(name.removeprefix(f"{table.name}_").removesuffix("_images"))
            path = f"{table.name}/{number}-images-*.tar"
            files = [{"split": "train", "path": path}]
            configs.append({"config_name": name, "data_files": files})
            infos[name] = DatasetInfo(features=_features(table, number), config_name=name)
    data = DatasetCardData()
    infos.to_dataset_card_data(data)
    described = data.to_dict().get("dataset_info", [])
    described = described if isinstance(described, list) else [described]
    return {"configs": configs, "dataset_info": described}


def _features(table: Table, images: int) -> Any:
    from datasets import Features, Image, Value

    plain = [field for field in table.arrow_schema if field.name not in image_columns(table)]
    return Features(
        {
            "json": dict(Features.from_arrow_schema(pa.schema(plain))),
            **{f"{number}.png": Image() for number in range(images)},
            "__key__": Value("string"),
            "__url__": Value("string"),
        }
    )
