"""verl: a Parquet file with the columns `prompt, images, data_source, reward_model, extra_info`.

With embedded images verl decodes the bytes in the file; with paths the file is small, and verl must
be started in the export's folder, because it opens paths as they are.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from schemas.curation import CRITIC_RL

from ..settings import ExportSettings
from .folder import ExportFolder

TABLES = (CRITIC_RL,)
DATA_SOURCE = "interleave_critic"
_FILE = "critic_rl.parquet"

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


def write(folder: ExportFolder, settings: ExportSettings) -> dict[str, int]:
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
    rows = _rows(folder, settings)
    return {_FILE: folder.parquet(_FILE, rows, schema, compression="zstd")}


def _rows(folder: ExportFolder, settings: ExportSettings) -> Iterator[dict[str, Any]]:
    image = partial(_image, folder, settings.verl_images == "embedded")
    for index, row in enumerate(folder.rows(CRITIC_RL)):
        copied = ("row_id", "origin_prompt", "rewritten_prompt", "origin_image", "edited_image")
        yield {
            "data_source": DATA_SOURCE,
            "prompt": row["messages"],
            "images": [image(row["origin_image"]), image(row["edited_image"])],
            "ability": "critic",
            "reward_model": {"style": "rule", "ground_truth": row["evaluation"]},
            "extra_info": {"index": index, "split": "train", **{key: row[key] for key in copied}},
        }


def _image(folder: ExportFolder, embedded: bool, sha256: str) -> dict[str, Any]:
    if embedded:
        return {"bytes": folder.home.images.get(sha256).data}
    return {"image": folder.add_image(sha256)}
