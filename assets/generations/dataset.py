"""The generations of a batch as Parquet of a Hugging Face `datasets` directory.

    datasets.load_dataset(".interleave/exports/generations/requests", split="train")

A row is a request: `images` and `texts` have an entry per step, in order. Every batch is one file,
so that batches can be written concurrently.
"""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import FoundryError
from schemas.trajectories import ATTEMPTS
from warehouse import ImageStore
from warehouse.atomic import atomic_path

from ..curation.exports.huggingface import datasets_schema, embedded_image
from .batch_runner import Rows, request_of, steps_of

_CARD = Path(__file__).with_name("dataset_card.md")
_TEXTS = ("generation_id", "status", "error", "planner", "generator", "critic")
_NUMBERS = ("t_max", "seed", "candidates", "attempts")


def write_dataset(images: ImageStore, folder: Path, batch: str, requests: Sequence[Rows]) -> None:
    """Replace a batch's file, row by row: the images of a batch need not fit in memory.

    Raises FoundryError: an image is missing or damaged, or the folder cannot be written.
    """
    target, schema = folder / "data" / f"{batch}.parquet", _schema()
    temporary = folder / f".{batch}-{secrets.token_hex(4)}.tmp"  # not where readers look for data
    try:
        with atomic_path(target, temporary) as draft:
            (folder / "README.md").write_bytes(_CARD.read_bytes())
            with pq.ParquetWriter(draft, schema, write_page_checksum=True) as writer:
                for rows in requests:
                    row = _row(images, rows)
                    writer.write_table(pa.Table.from_pylist([row], schema=schema))
    except OSError as error:
        raise FoundryError(f"{target} cannot be written: {error.strerror or error}") from error


def _row(images: ImageStore, rows: Rows) -> dict[str, Any]:
    request, steps = request_of(rows), steps_of(rows)
    chosen = {each.step_number: each for each in rows[ATTEMPTS] if each.chosen}
    attempts = [chosen.get(step.step_number) for step in steps]
    return {
        **request.model_dump(include={*_TEXTS, *_NUMBERS}),
        "id": request.request_key,
        "request": request.text,
        "given_images": [embedded_image(images, sha256) for sha256 in request.input_images],
        "names": [step.step_name for step in steps],
        "texts": [step.auxiliary_text or step.instruction or "" for step in steps],
        "images": [embedded_image(images, each.image) if each else None for each in attempts],
        "accepted": [each.accepted if each else None for each in attempts],
    }


def _schema() -> pa.Schema:
    text = pa.string()
    fields = {
        **dict.fromkeys(_TEXTS, text),
        **dict.fromkeys(_NUMBERS, pa.int64()),
        "id": text,
        "request": text,
        "given_images": None,
        "names": pa.list_(text),
        "texts": pa.list_(text),
        "images": None,
        "accepted": pa.list_(pa.bool_()),
    }
    return datasets_schema(fields)
