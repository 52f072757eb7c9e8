"""verl: a Parquet file with the columns `prompt, images, data_source, reward_model, extra_info`.

With embedded images the file is complete in itself and verl decodes the bytes; with paths it is
small, and verl must be started in the export's folder, because verl opens paths as they are.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.curation import CRITIC_RL

from ..settings import ExportSettings
from .folder import Folder, batched

TABLES = (CRITIC_RL,)
DATA_SOURCE = "interleave_critic"
_FILE = "critic_rl.parquet"
_BATCH = 256  # rows, and pictures in memory are twice as many

_PROMPT = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_TRUTH = pa.struct(
    [("success", pa.bool_()), ("semantics", pa.float64()), ("quality", pa.float64())]
)
_IMAGES = {
    "embedded": pa.list_(pa.struct([("bytes", pa.binary())])),
    "paths": pa.list_(pa.struct([("image", pa.string())])),
}
_EXTRA = pa.struct(
    [
        ("index", pa.int64()),
        ("split", pa.string()),
        ("row_id", pa.string()),
        ("origin_prompt", pa.string()),
        ("rewritten_prompt", pa.string()),
        ("origin_image", pa.string()),
        ("edited_image", pa.string()),
    ]
)


def write(folder: Folder, settings: ExportSettings) -> dict[str, int]:
    """Write the data set; rows by file."""
    schema = pa.schema(
        [
            ("data_source", pa.string()),
            ("prompt", _PROMPT),
            ("images", _IMAGES[settings.verl_images]),
            ("ability", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", _TRUTH)])),
            ("extra_info", _EXTRA),
        ]
    )
    count = 0
    with pq.ParquetWriter(folder.path / _FILE, schema, compression="zstd") as writer:
        for rows in batched(_rows(folder, settings), _BATCH):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return {_FILE: count}


def _rows(folder: Folder, settings: ExportSettings) -> Iterator[dict[str, Any]]:
    image = partial(_image, folder, settings.verl_images == "embedded")
    for index, row in enumerate(folder.rows(CRITIC_RL)):
        kept = ("row_id", "origin_prompt", "rewritten_prompt", "origin_image", "edited_image")
        yield {
            "data_source": DATA_SOURCE,
            "prompt": row["messages"],
            "images": [image(row["origin_image"]), image(row["edited_image"])],
            "ability": "critic",
            "reward_model": {"style": "rule", "ground_truth": row["evaluation"]},
            "extra_info": {"index": index, "split": "train", **{key: row[key] for key in kept}},
        }


def _image(folder: Folder, embedded: bool, sha256: str) -> dict[str, Any]:
    if embedded:
        return {"bytes": folder.home.images.get(sha256).data}
    return {"image": folder.picture(sha256)}
