"""What the columns of a training set mean: its images, its verdict, what makes a row distinct.

Functions named `_sql` return an expression or a query of DuckDB over the columns of a set.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from schemas import Table
from schemas.trajectories import ATTEMPT_KEY

_IMAGES = ("images", "input_images", "origin_image", "edited_image")


def image_columns(table: Table) -> tuple[str, ...]:
    """Columns with sha256 of images: one list of them, or one column an image."""
    return tuple(name for name in _IMAGES if name in table.columns)


def images_of(row: Mapping[str, Any]) -> list[str]:
    """A row's images (sha256) in the order of their placeholders."""
    if "origin_image" in row:
        return [row["origin_image"], row["edited_image"]]
    return list(row["images"] if "images" in row else row["input_images"])


def images_sql(columns: Iterable[str]) -> str:
    """The same in SQL."""
    return "[origin_image, edited_image]" if "origin_image" in columns else "images"


def verdict_sql(columns: Iterable[str]) -> str:
    """The verdict that a row teaches; NULL: it is not a critic's."""
    if "evaluation" in columns:
        return "evaluation.success"
    return "accepted" if "accepted" in columns else "NULL::BOOLEAN"


def content_sql(columns: Iterable[str]) -> str:
    """A hash of what a model reads and learns from a row."""
    return f"md5(concat_ws(' ', messages::VARCHAR, {images_sql(columns)}::VARCHAR))"


def distinct_sql(table: str, columns: Iterable[str], order: str) -> str:
    """The rows whose content no earlier row has, and their copies by balancing, which have the same
    `original`."""
    original = f"concat_ws('/', {', '.join(ATTEMPT_KEY)})" if "iteration" in columns else "row_id"
    return f"""
        SELECT *, {original} AS original FROM {table}
        QUALIFY original = first_value(original) OVER (
            PARTITION BY {content_sql(columns)} ORDER BY {order}
        )
    """
