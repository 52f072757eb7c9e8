"""The white canvas that stands for "nothing yet" before a story's first picture."""

from functools import lru_cache

from warehouse import EncodedImage, Home

from ..core.duckdb_session import duckdb_session

_FALLBACK_SIZE = 192


def white_canvas(home: Home, size: int | None = None) -> str:
    """Store a white picture and return its sha256.

    Args:
        size: pixels on a side; None: as large as one of the pictures drawn from scratch.
    """
    shape = (size, size) if size else _picture_size(home)
    return home.images.put(EncodedImage.white(shape))


def _picture_size(home: Home) -> tuple[int, int]:
    found = (
        duckdb_session(home)
        .execute("SELECT min(image) FROM attempts WHERE source_image IS NULL")
        .fetchall()
    )
    if found[0][0] is None:
        return (_FALLBACK_SIZE, _FALLBACK_SIZE)
    return home.images.get(found[0][0]).image.size


@lru_cache(maxsize=100_000)
def is_white(home: Home, sha256: str) -> bool:
    """Whether a stored picture is a white canvas."""
    colours = home.images.get(sha256).image.getcolors(maxcolors=1)
    return colours is not None and colours[0][1] == (255, 255, 255)
