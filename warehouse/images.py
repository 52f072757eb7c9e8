"""The image store: images named by the sha256 of their bytes, verified on reading."""

import re

from schemas import BadImageError

from .encoded_image import EncodedImage
from .storage import Storage

_REMEDY = "`interleave run --select trajectories --force` generates it again"
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ImageStore:
    """Images below one root, as `ab/abcdef....png`."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def put(self, image: EncodedImage) -> str:
        """Store an image, unless it is stored already; returns its sha256.

        Raises:
            BadImageError: it cannot be decoded; nothing is stored.
            StorageError: it cannot be written.
        """
        path = self.relative_path(image.sha256)
        # The size is compared because a power cut can truncate a file.
        if self.storage.size(path) != len(image.data):
            _ = image.image
            self.storage.write(path, image.data, durable=False)
        return image.sha256

    def get(self, sha256: str) -> EncodedImage:
        """The image of that hash, not decoded.

        Raises:
            BadImageError: it is missing, or its bytes have another hash.
            StorageError: it cannot be read.
        """
        path = self.relative_path(sha256)
        try:
            image = EncodedImage(self.storage.read(path))
        except FileNotFoundError as error:
            raise BadImageError(f"image {self.url(sha256)} is missing: {_REMEDY}") from error
        if image.sha256 != sha256:
            raise BadImageError(
                f"image {self.url(sha256)} is damaged ({len(image.data)} bytes of another "
                f"hash): delete it; {_REMEDY}"
            )
        return image

    def exists(self, sha256: str) -> bool:
        """Whether the image is stored; its bytes are not verified."""
        return self.storage.exists(self.relative_path(sha256))

    def url(self, sha256: str) -> str:
        """Absolute path in a local store, URL in a remote one."""
        return self.storage.url(self.relative_path(sha256))

    def relative_path(self, sha256: str) -> str:
        """Path below the store's root, the same in every home.

        Raises:
            BadImageError: not a sha256.
        """
        if not _SHA256.fullmatch(sha256):
            raise BadImageError(f"{sha256!r} is not the sha256 of an image")
        return f"{sha256[:2]}/{sha256}.png"
