"""WebDataset: tar files whose samples are a JSON file and PNG images with one key, to be streamed.

Samples with as many images share a configuration and its files, since `datasets` needs the same
files in every sample of one; `webdataset` itself reads all files of a table together.
"""

import io
import tarfile
from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from schemas import Table
from schemas.curation import CRITIC_DPO, CRITIC_RL, CRITIC_SFT, PLANNER_SFT, SEQUENCES

from ..settings import ExportSettings
from ..sources import image_columns, images_of
from .folder import ExportFolder

TABLES = (CRITIC_SFT, CRITIC_RL, CRITIC_DPO, PLANNER_SFT, SEQUENCES)


def write_webdataset(folder: ExportFolder, settings: ExportSettings) -> dict[str, int]:
    """Every table as `TABLE/N-images-SHARD.tar`; samples by configuration `TABLE_N_images`.

    A sample is `KEY.json`, the row without its images, and `KEY.0.png`, `KEY.1.png` ...
    """
    counts: dict[str, int] = {}
    for table in TABLES:
        counts |= _write_table(folder, table, settings.rows_per_file)
    return counts


def _write_table(folder: ExportFolder, table: Table, rows_per_file: int) -> dict[str, int]:
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


def card_header(_folder: ExportFolder, counts: Mapping[str, int]) -> dict[str, Any]:
    """Configurations with their features, which `datasets` would guess from a few samples."""
    from datasets import DatasetInfo
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    infos, configs = DatasetInfosDict(), []
    for table in TABLES:
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
