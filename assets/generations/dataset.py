"""The generations of a batch as Parquet of a Hugging Face `datasets` directory.

    datasets.load_dataset(".interleave/exports/generations/requests", split="train")

A row is a request: `images` and `texts` have an entry per step, in order. Every batch is one file,
so that batches can be written concurrently.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import FoundryError
from schemas.generations import GenerationRow
from warehouse import ImageStore
from warehouse.atomic import atomic_path

from ..curation.exports.folder import embedded_image
from ..curation.exports.huggingface import datasets_schema
from .batch_runner import BatchResults

_CARD = Path(__file__).with_name("dataset_card.md")
_PLAIN = (
    "generation_id",
    "status",
    "error",
    "planner",
    "generator",
    "critic",
    "t_max",
    "seed",
    "candidates",
    "attempts",
)


def write_dataset(images: ImageStore, folder: Path, batch: str, results: BatchResults) -> None:
    """Replace a batch's file.

    Raises:
        BadImageError: an image is missing or damaged.
        FoundryError: the folder cannot be written.
    """
    rows = (_row(images, results, request) for request in results.requests)
    target = folder / "data" / f"{batch}.parquet"
    temporary = folder / f".{batch}-{secrets.token_hex(4)}.tmp"  # not where readers look for data
    try:
        with atomic_path(target, temporary) as draft:
            (folder / "README.md").write_bytes(_CARD.read_bytes())
            _write(draft, rows)
    except OSError as error:
        raise FoundryError(f"{target} cannot be written: {error.strerror or error}") from error


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Row by row: the images of a batch need not fit in memory."""
    schema = _schema()
    with pq.ParquetWriter(path, schema) as writer:
        for row in rows:
            writer.write_table(pa.Table.from_pylist([row], schema=schema))


def _row(images: ImageStore, results: BatchResults, request: GenerationRow) -> dict[str, Any]:
    steps = results.steps(request)
    chosen = {each.step_number: each for each in results.attempts(request) if each.chosen}
    attempts = [chosen.get(step.step_number) for step in steps]
    return {
        **request.model_dump(include=set(_PLAIN)),
        "id": request.request_key,
        "request": request.text,
        "given_images": [embedded_image(images, sha256) for sha256 in request.input_images],
        "names": [step.step_name for step in steps],
        "texts": [step.auxiliary_text or step.instruction or "" for step in steps],
        "images": [embedded_image(images, each.image) if each else None for each in attempts],
        "accepted": [each.accepted if each else None for each in attempts],
    }


def _schema() -> pa.Schema:
    numbers = {"t_max", "seed", "candidates", "attempts"}
    texts = pa.list_(pa.string())
    return datasets_schema(
        {
            **{name: pa.int64() if name in numbers else pa.string() for name in _PLAIN},
            "id": pa.string(),
            "request": pa.string(),
            "given_images": None,
            "names": texts,
            "texts": texts,
            "images": None,
            "accepted": pa.list_(pa.bool_()),
        }
    )
