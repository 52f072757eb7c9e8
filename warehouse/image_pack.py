"""A pack: the images of a shard in one Parquet file, sorted by hash.

Columns are `sha256` and `image`, a struct as `datasets` has for pictures, so that any reader of
Parquet opens a pack. Bytes are stored plainly, without compression or dictionary: so every image is
one range of bytes of the file. The footer lists the ranges, with a checksum; an image is read by
its range alone. `docs/compaction.md` says why.
"""

import base64
import hashlib
import mmap
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from schemas import StorageError

from .storage import Storage, first_line

PACK = ".parquet"

_RANGES = b"interleave.ranges"
_RECORD = struct.Struct("<32sQQ")
_GROUP_BYTES = 8 * 2**20  # of a row group, which other readers load as a whole
_FEATURES = {"sha256": {"dtype": "string", "_type": "Value"}, "image": {"_type": "Image"}}
_SCHEMA = pa.schema(
    [
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
    ],
    metadata={"huggingface": orjson.dumps({"info": {"features": _FEATURES}})},
)
_WRITING: dict[str, Any] = {
    "compression": "none",
    "use_dictionary": False,
    "write_page_checksum": True,
}


class ImageRange(NamedTuple):
    """Where an image is in its pack."""

    sha256: str
    offset: int
    length: int


def write_pack(
    target: Path, images: Iterator[tuple[str, bytes]], max_bytes: int
) -> list[ImageRange]:
    """Write images (sha256, bytes), sorted by hash, up to `max_bytes`, and return their ranges; the
    others stay in the iterator."""
    ranges: list[ImageRange] = []
    with pq.ParquetWriter(target, _SCHEMA, **_WRITING) as writer:
        for group in _groups(images, max_bytes):
            writer.write_table(_to_arrow(group))
            ranges += _find(target, group, ranges[-1].offset + ranges[-1].length if ranges else 0)
        writer.add_key_value_metadata({_RANGES: _encode(ranges)})
    return ranges


def read_ranges(packs: Storage, name: str) -> list[ImageRange]:
    """The ranges of the images of a pack, sorted by hash.

    Raises:
        FileNotFoundError: there is no such pack.
        StorageError: its footer is damaged, or it cannot be read.
    """
    try:
        with packs.open(name) as file:
            return _decode((pq.read_metadata(file).metadata or {})[_RANGES])
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException, ValueError, KeyError, struct.error) as error:
        raise StorageError(
            f"the footer of {packs.url(name)} is damaged ({first_line(error)}): move the file "
            "away; `interleave run --select trajectories --force` generates its images again"
        ) from error


def read_pack(packs: Storage, name: str) -> Iterator[tuple[str, bytes]]:
    """Every image of a pack with the hash that it should have, which is not verified."""
    for sha256, offset, length in read_ranges(packs, name):
        yield sha256, packs.read_range(name, offset, length)


def damaged_images(packs: Storage, name: str) -> list[str]:
    """Images of a pack whose bytes have another hash; raises as `read_ranges`."""
    contents = read_pack(packs, name)
    return [sha256 for sha256, data in contents if hashlib.sha256(data).hexdigest() != sha256]


def _groups(
    images: Iterable[tuple[str, bytes]], max_bytes: int
) -> Iterator[list[tuple[str, bytes]]]:
    group: list[tuple[str, bytes]] = []
    size = total = 0
    for image in images:
        group.append(image)
        size, total = size + len(image[1]), total + len(image[1])
        if size >= _GROUP_BYTES or total >= max_bytes:
            yield group
            group, size = [], 0
        if total >= max_bytes:
            return
    if group:
        yield group


def _to_arrow(group: list[tuple[str, bytes]]) -> pa.Table:
    rows = [{"sha256": name, "image": {"bytes": data, "path": None}} for name, data in group]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _find(path: Path, group: list[tuple[str, bytes]], end: int) -> list[ImageRange]:
    """Ranges of images that were written after `end`: each begins a few bytes after the last."""
    ranges = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        for sha256, data in group:
            start = content.find(data, end)
            if start < 0:
                raise StorageError(f"{path}: image {sha256} was not written as it is")
            end = start + len(data)
            ranges.append(ImageRange(sha256, start, len(data)))
    return ranges


def _encode(ranges: Iterable[ImageRange]) -> bytes:
    records = b"".join(_RECORD.pack(bytes.fromhex(name), *place) for name, *place in ranges)
    return base64.b64encode(hashlib.sha256(records).digest() + records)


def _decode(text: bytes) -> list[ImageRange]:
    """ValueError: the checksum is wrong."""
    content = base64.b64decode(text, validate=True)
    checksum, records = content[:32], content[32:]
    if hashlib.sha256(records).digest() != checksum:
        raise ValueError("its checksum is wrong")
    return [ImageRange(name.hex(), *place) for name, *place in _RECORD.iter_unpack(records)]
