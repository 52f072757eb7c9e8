"""LLaMA-Factory: sharegpt JSON files and the `dataset_info.json` that declares them.

`dataset_dir` (and `media_dir`, which defaults to it) must be the folder; image paths are relative
to it.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from schemas import Table
from schemas.curation import CRITIC_SFT, PLANNER_SFT, SEQUENCES

from .folder import ExportFolder

TABLES = (PLANNER_SFT, CRITIC_SFT, SEQUENCES)
_COLUMNS = {"messages": "messages", "images": "images"}
_TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
}


def write(folder: ExportFolder) -> dict[str, int]:
    """Write the data sets; rows by file."""
    counts = {
        "planner_sft.json": folder.json_list("planner_sft.json", _samples(folder, PLANNER_SFT)),
        "critic_sft.json": folder.json_list("critic_sft.json", _samples(folder, CRITIC_SFT)),
    }
    for form in ("easy", "reflection"):
        name = f"sequences_{form}.json"
        counts[name] = folder.json_list(name, _samples(folder, SEQUENCES, f"form = '{form}'"))
    shared = {"formatting": "sharegpt", "columns": _COLUMNS, "tags": _TAGS}
    info = {name.removesuffix(".json"): {"file_name": name, **shared} for name in counts}
    (folder.path / "dataset_info.json").write_bytes(orjson.dumps(info, option=orjson.OPT_INDENT_2))
    return counts


def _samples(folder: ExportFolder, table: Table, where: str = "true") -> Iterator[dict[str, Any]]:
    """Samples with images come first.

    LLaMA-Factory infers the type of its images column from the first 1,000 rows (of each worker's
    contiguous share) and fails at an image that follows 1,000 rows without one.
    """
    for condition in ("len(images) > 0", "len(images) = 0"):
        for row in folder.rows(table, f"{where} AND {condition}"):
            images = [folder.add_image(image) for image in row["images"]]
            yield {"messages": row["messages"], "images": images}
