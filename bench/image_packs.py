"""Packing images into one file, and reading one image: as a file, and in a pack.

`docs/compaction.md` compares formats; this measures what `interleave compact` does.
"""

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from warehouse import EncodedImage, Home
from warehouse.compaction import pack_images

MEANING = {
    "compacted_images_per_second": ("images of 96 x 96 pixels packed, their files deleted", ""),
    "file_read_us": ("read of a random image that is a file, verified", ""),
    "packed_read_us": ("read of a random image in a pack, verified", "about `file_read_us`"),
    "pack_index_open_ms": ("a process's first read of a packed image, index on disk", ""),
    "pack_index_rebuild_images_per_second": ("the index made again from the packs", ""),
}

_IMAGES, _READS = 10_000, 2000


def measure() -> dict[str, float]:
    """On a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="interleave-bench-"))
    try:
        home = Home(folder)
        names = sorted(home.images.put(_image(number)) for number in range(_IMAGES))
        chosen = random.Random(0).choices(names, k=_READS)
        as_files = _seconds(lambda: _read(home, chosen)) / _READS
        packing = _seconds(lambda: pack_images(home.images, names, "bench"))
        packed = _seconds(lambda: _read(home, chosen)) / _READS
        opening = _seconds(lambda: _read(Home(folder), names[:1]))
        home.images.index_file.unlink()
        rebuilding = _seconds(Home(folder).images.packs.refresh)
        return {
            "compacted_images_per_second": _IMAGES / packing,
            "file_read_us": as_files * 1e6,
            "packed_read_us": packed * 1e6,
            "pack_index_open_ms": opening * 1e3,
            "pack_index_rebuild_images_per_second": _IMAGES / rebuilding,
        }
    finally:
        shutil.rmtree(folder)


def _image(number: int) -> EncodedImage:
    """An image of some kilobytes, unlike all others."""
    rows = random.Random(number).randbytes(32 * 32 * 3)
    return EncodedImage.of(Image.frombytes("RGB", (32, 32), rows).resize((96, 96), 0))


def _read(home: Home, names: list[str]) -> None:
    for name in names:
        home.images.get(name)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
