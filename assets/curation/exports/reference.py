"""The reference's `critic_rl.jsonl`, with exactly the keys that its loader reads.

Its paths are relative to the folder, in which the trainer must be started. The image before a first
step is `data/interleave/white.png`: by this name the reference's reward recognises that an image is
to be generated instead of edited.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from schemas.curation import CRITIC_RL
from warehouse import Home

from .folder import ExportFolder

TABLES = (CRITIC_RL,)
WHITE = "data/interleave/white.png"


def write(folder: ExportFolder) -> dict[str, int]:
    """Write the data set; rows by file."""
    return {"critic_rl.jsonl": folder.json_lines("critic_rl.jsonl", _rows(folder))}


def _rows(folder: ExportFolder) -> Iterator[dict[str, Any]]:
    for row in folder.rows(CRITIC_RL):
        yield {
            "origin_prompt": row["origin_prompt"],
            "rewritten_prompt": row["rewritten_prompt"],
            "origin_image_path": _source_path(folder, row["origin_image"]),
            "edited_image_path": folder.add_image(row["edited_image"]),
            "evaluation": row["evaluation"],
        }


def _source_path(folder: ExportFolder, sha256: str) -> str:
    if not _is_white(folder.home, sha256):
        return folder.add_image(sha256)
    target = folder.path / WHITE
    if not target.exists():
        target.parent.mkdir(parents=True)
        target.write_bytes(folder.home.images.get(sha256).data)
    return WHITE


@lru_cache(maxsize=100_000)
def _is_white(home: Home, sha256: str) -> bool:
    return home.images.get(sha256).is_white
