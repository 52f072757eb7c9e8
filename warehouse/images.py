"""Encoded images, identified by the sha256 of their bytes, and the store that keeps them."""

import base64
import hashlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path

from PIL import Image

from schemas import BadImageError

from .image_pack import PackIndex
from .storage import FileStat, Storage

UPLOAD_FORMATS = ("PNG", "JPEG", "WEBP")
"""Pillow's names of the formats that users may send."""

FRESH_SECONDS = 24 * 3600
"""Age from which a copy of an image is made new by `put`; far below any grace period."""

_REMEDY = "`interleave run --select trajectories --force` generates it again"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}\.png")
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_MAGIC = ((_JPEG, "image/jpeg"), (b"RIFF", "image/webp"), (b"GIF8", "image/gif"))

# What Pillow may spend on a user's image whose pixels and bytes are few: microseconds for each
# chunk or segment, milliseconds for a compressed chunk, which may become a MiB, a pass over all
# pixels for each scan. Ordinary images have a tenth of these.
_MAX_CHUNKS = 10_000
_MAX_COMPRESSED = 50
_MAX_SCANS = 50
_COMPRESSED = (b"iCCP", b"iTXt", b"zTXt")
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")  # of a JPEG's segment; others are data
_SCAN, _END = 0xDA, 0xD9


class ImageTooLargeError(BadImageError):
    """An image of more pixels than allowed; the message is its size, such as `640x480`."""


class TooManyChunksError(BadImageError):
    """An image that takes too long to decode; the message is what it has too many of."""


@dataclass(frozen=True)
class EncodedImage:
    """Encoded image bytes (PNG where we encode them); equality and hash are those of the bytes."""

    data: bytes

    @classmethod
    def of(cls, image: Image.Image) -> "EncodedImage":
        """As RGB PNG."""
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "PNG", compress_level=1)
        return cls(buffer.getvalue())

    @classmethod
    @lru_cache(8)  # sizes: a generator draws one
    def white(cls, size: tuple[int, int]) -> "EncodedImage":
        """The white canvas (width, height) that stands for a missing image before an edit."""
        return cls.of(Image.new("RGB", size, "white"))

    @property
    def is_white(self) -> bool:
        return self.image.getextrema() == ((255, 255),) * 3

    @property
    def as_png(self) -> "EncodedImage":
        """Itself if it is PNG, else re-encoded; raises what `image` does."""
        return self if self.data.startswith(b"\x89PNG") else EncodedImage.of(self.image)

    def encoded(self, form: str, quality: int = 100) -> "EncodedImage":
        """As png, jpeg or webp; `quality`: of the last two, 0 to 100. Raises what `image` does."""
        if form == "png":
            return self.as_png
        buffer = io.BytesIO()
        self.image.save(buffer, form, quality=quality)
        return EncodedImage(buffer.getvalue())

    @cached_property
    def sha256(self) -> str:
        """Hash of the bytes, 64 hexadecimal digits."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def mime(self) -> str:
        """Media type by the first bytes; unknown ones count as PNG."""
        return next((mime for magic, mime in _MAGIC if self.data.startswith(magic)), "image/png")

    @property
    def data_url(self) -> str:
        return f"data:{self.mime};base64,{base64.b64encode(self.data).decode('ascii')}"

    @cached_property
    def image(self) -> Image.Image:
        """The decoded RGB image; BadImageError: the bytes are none, or a truncated one."""
        try:
            return Image.open(io.BytesIO(self.data)).convert("RGB")
        except Exception as error:
            name = f"{self.sha256[:12]} ({len(self.data)} bytes)"
            raise BadImageError(f"image {name} cannot be decoded: {error}") from error


def check_upload(data: bytes, max_pixels: int, decode: bool = True) -> None:
    """Check the size of a user's image by its header, then `decode` it to find truncated ones.

    Raises:
        ImageTooLargeError: more than `max_pixels`.
        TooManyChunksError: more chunks, segments or scans than images have.
        BadImageError: not an image in one of `UPLOAD_FORMATS`, or it cannot be decoded.
    """
    _check_chunks(data)
    try:
        with Image.open(io.BytesIO(data), formats=UPLOAD_FORMATS) as image:
            width, height = image.size
            if decode and width * height <= max_pixels:
                image.load()
    except Image.DecompressionBombError:  # Pillow's own limit, also on the header
        raise ImageTooLargeError("far too many") from None
    except Exception as error:  # Pillow raises errors of all kinds
        raise BadImageError(f"not an image in {', '.join(UPLOAD_FORMATS)}: {error}") from error
    if width * height > max_pixels:
        raise ImageTooLargeError(f"{width}x{height}")


def _check_chunks(data: bytes) -> None:
    if data.startswith(_PNG):
        if _has_more(_png_chunks(data), _MAX_CHUNKS):
            raise TooManyChunksError(f"more than {_MAX_CHUNKS} chunks")
        compressed = (kind for kind in _png_chunks(data) if kind in _COMPRESSED)
        if _has_more(compressed, _MAX_COMPRESSED):
            raise TooManyChunksError(f"more than {_MAX_COMPRESSED} compressed chunks of metadata")
    if data.startswith(_JPEG):
        if _has_more(_jpeg_segments(data), _MAX_CHUNKS):
            raise TooManyChunksError(f"more than {_MAX_CHUNKS} segments or bytes between them")
        if _has_more((kind for kind in _jpeg_segments(data) if kind == _SCAN), _MAX_SCANS):
            raise TooManyChunksError(f"more than {_MAX_SCANS} scans")


def _has_more(items: Iterator[object], count: int) -> bool:
    return next(islice(items, count, None), None) is not None


def _png_chunks(data: bytes) -> Iterator[bytes]:
    """The kind of each chunk."""
    position = len(_PNG)
    while position < len(data):
        yield data[position + 4 : position + 8]
        position += 12 + int.from_bytes(data[position : position + 4], "big")


def _jpeg_segments(data: bytes) -> Iterator[int]:
    """The kind of each segment up to the image's end, and each byte that lies between two
    before the first scan, where Pillow looks at every one."""
    position, kind, seen_scan = len(_JPEG), 0, False
    while kind != _END and (marker := _MARKER.search(data, position)):
        if not seen_scan:
            yield from data[position : marker.start()]
        kind = data[marker.end() - 1]
        seen_scan |= kind == _SCAN
        yield kind
        position = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")


@dataclass(frozen=True)
class ImageStore:
    """Images below one root, verified on reading.

    An image is a file, `ab/abcdef....png`, or in a pack, `packs/*.parquet` (see `image_pack`).

    Args:
        index_file: the local index of the packs, see `PackIndex`.
    """

    storage: Storage
    index_file: Path

    @cached_property
    def packs(self) -> PackIndex:
        return PackIndex(self.storage.child("packs"), self.index_file)

    def put(self, image: EncodedImage) -> str:
        """Store an image, unless these bytes are stored already; returns its sha256.

        A copy that exists is made new, so that it is not taken for garbage (`garbage.py`) before
        what refers to it is written.

        Raises:
            BadImageError: it cannot be decoded; nothing is stored.
            StorageError: it cannot be written.
        """
        path = self.relative_path(image.sha256)
        stored = self.storage.stat(path)
        if stored and stored.size == len(image.data) and self._has(path, image.data):
            if stored.age > FRESH_SECONDS:
                self.storage.touch(path)
        elif not self._is_packed_lately(image):
            _ = image.image
            self.storage.write(path, image.data, durable=False)
        return image.sha256

    def _has(self, path: str, data: bytes) -> bool:
        """Whether a file of that size has these bytes: a damaged one is written again."""
        with suppress(FileNotFoundError):
            return self.storage.read(path) == data
        return False

    def get(self, sha256: str) -> EncodedImage:
        """The image of that hash, not decoded.

        Raises:
            BadImageError: it is missing, or its bytes have another hash.
            StorageError: it cannot be read.
        """
        self.relative_path(sha256)
        problem = "is missing:"
        for where, data in self._copies(sha256):
            image = EncodedImage(data)
            if image.sha256 == sha256:
                return image
            problem = f"is damaged ({len(data)} bytes of another hash){where}"
        raise BadImageError(f"image {self.url(sha256)} {problem} {_REMEDY}")

    def exists(self, sha256: str) -> bool:
        """Whether the image is stored; its bytes are not verified."""
        path = self.relative_path(sha256)
        if self.packs.find(sha256) or self.storage.exists(path):
            return True
        self.packs.refresh()  # it may have been packed meanwhile
        return bool(self.packs.find(sha256))

    def link(self, sha256: str, target: Path) -> None:
        """Put an image at a local path: a hard link where that is possible, else a copy.

        Raises (besides OSError): what `get` does.
        """
        if self.storage.is_local:
            with suppress(OSError):
                os.link(self.url(sha256), target)
                return
        target.write_bytes(self.get(sha256).data)

    def url(self, sha256: str) -> str:
        """Absolute path in a local store, URL in a remote one, of an image that is a file."""
        return self.storage.url(self.relative_path(sha256))

    def relative_path(self, sha256: str) -> str:
        """Path of an image that is a file, below the store's root, the same in every home;
        BadImageError: not a sha256."""
        if not _SHA256.fullmatch(sha256):
            raise BadImageError(f"{sha256!r} is not the sha256 of an image")
        return f"{sha256[:2]}/{sha256}.png"

    def files(self) -> Iterator[tuple[str, FileStat]]:
        """Paths of the images that are files, sorted, and their sizes and ages."""
        for path, stat in self.storage.walk(("packs", ".tmp")):
            if _FILE.fullmatch(path):
                yield path, stat

    def _copies(self, sha256: str) -> Iterator[tuple[str, bytes]]:
        """Bytes of the copies of an image, and for messages what to do about a damaged one."""
        yield from self._packed(sha256)
        with suppress(FileNotFoundError):
            yield ": delete it;", self.storage.read(self.relative_path(sha256))
        self.packs.refresh()  # it may have been packed, or its pack rewritten, meanwhile
        yield from self._packed(sha256)

    def _packed(self, sha256: str) -> Iterator[tuple[str, bytes]]:
        for pack, data in self.packs.read(sha256):
            yield f" in {self.packs.packs.url(pack)}:", data

    def _is_packed_lately(self, image: EncodedImage) -> bool:
        """Whether a pack that is not old has the image, undamaged."""
        for pack, data in self.packs.read(image.sha256):
            stat = self.packs.packs.stat(pack)
            if stat and stat.age < FRESH_SECONDS and data == image.data:
                return True
        return False
