"""The reference's `critic_rl.jsonl`, with exactly the keys that its loader reads.

Its paths are used as they are, so they are relative to the folder: start the trainer in it. A
first step's picture before is `data/interleave/white.png`, by which name the reference's reward
knows to draw from scratch instead of editing.
"""

from collections.abc import Iterator
from typing import Any

from schemas.curation import CRITIC_RL

from ..white_canvas import is_white
from .folder import Folder

TABLES = (CRITIC_RL,)
WHITE = "data/interleave/white.png"


def write(folder: Folder) -> dict[str, int]:
    """Write the data set; rows by file."""
    return {"critic_rl.jsonl": folder.json_lines("critic_rl.jsonl", _rows(folder))}


def _rows(folder: Folder) -> Iterator[dict[str, Any]]:
    for row in folder.rows(CRITIC_RL):
        yield {
            "origin_prompt": row["origin_prompt"],
            "rewritten_prompt": row["rewritten_prompt"],
            "origin_image_path": _origin(folder, row["origin_image"]),
            "edited_image_path": folder.picture(row["edited_image"]),
            "evaluation": row["evaluation"],
        }


def _origin(folder: Folder, sha256: str) -> str:
    if not is_white(folder.home, sha256):
        return folder.picture(sha256)
    target = folder.path / WHITE
    if not target.exists():
        target.parent.mkdir(parents=True)
        target.write_bytes(folder.home.images.get(sha256).data)
    return WHITE
