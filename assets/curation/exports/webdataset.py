"""WebDataset: tar files whose samples are a JSON file and PNG images with one key, to be streamed.

Samples with as many images share a configuration and its files, since `datasets` needs the same
files in every sample of one; `webdataset` itself reads all files of a table together.
"""

import io
import tarfile
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from schemas import Table
from schemas.curation import CRITIC_DPO, CRITIC_RL, CRITIC_SFT, PLANNER_SFT, SEQUENCES

from ..set_columns import image_columns, images_of
from ..settings import ExportSettings
from .folder import ExportFolder

TABLES = (CRITIC_SFT, CRITIC_RL, CRITIC_DPO, PLANNER_SFT, SEQUENCES)


def write_webdataset(folder: ExportFolder, settings: ExportSettings) -> dict[str, int]:
    """Every table as `TABLE/N-images-SHARD.tar`; samples by configuration `TABLE_N_images`.

    A sample is `KEY.json`, the row without its images, and `KEY.0.png`, `KEY.1.png` ...
    """
    counts: Counter[str] = Counter()
    for table in TABLES:
        counts += _write_table(folder, table, settings.rows_per_file)
    return dict(counts)


def _write_table(folder: ExportFolder, table: Table, rows_per_file: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    (folder.path / table.name).mkdir()
    with ExitStack() as open_files:
        writers: dict[int, _ShardWriter] = {}
        for row in folder.rows(table):
            images = images_of(row)
            if (number := len(images)) not in writers:
                prefix = folder.path / table.name / f"{number}-images"
                writers[number] = open_files.enter_context(_ShardWriter(prefix, rows_per_file))
            plain = {n: value for n, value in row.items() if n not in image_columns(table)}
            data = [folder.home.images.get(sha256).as_png.data for sha256 in images]
            writers[number].write({"json": orjson.dumps(plain), **_image_files(data)})
            counts[f"{table.name}_{number}_images"] += 1
    return counts


def _image_files(images: list[bytes]) -> dict[str, bytes]:
    return {f"{number}.png": data for number, data in enumerate(images)}


class _ShardWriter:
    """Writes samples to `PREFIX-00000.tar` and on, some samples a file."""

    def __init__(self, prefix: Path, samples_per_file: int) -> None:
        self._prefix, self._samples_per_file = prefix, samples_per_file
        self._samples = 0
        self._file: tarfile.TarFile | None = None

    def write(self, parts: Mapping[str, bytes]) -> None:
        """Add a sample: its files by extension."""
        shard, position = divmod(self._samples, self._samples_per_file)
        if position == 0:
            self._close()
            path = self._prefix.with_name(f"{self._prefix.name}-{shard:05d}.tar")
            self._file = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
        assert self._file is not None
        for extension, data in parts.items():
            entry = tarfile.TarInfo(f"{self._prefix.name}-{self._samples:08d}.{extension}")
            entry.size = len(data)
            self._file.addfile(entry, io.BytesIO(data))
        self._samples += 1

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> "_ShardWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


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
