"""The image store: pictures named by the sha256 of their bytes, checked when they are read."""

import re

from schemas import BadImageError

from .encoded_image import EncodedImage
from .storage import Storage

_REMEDY = "`interleave run --select trajectories --force` draws it again"
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ImageStore:
    """Pictures below one root, as `ab/abcdef....png`."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def put(self, picture: EncodedImage) -> str:
        """Store a picture unless it is there; its sha256.

        Raises:
            BadImageError: it cannot be decoded; nothing is stored.
            StorageError: it could not be written.
        """
        path = self.relative(picture.sha256)
        # The size is compared because a power cut can leave a shorter file behind.
        if self.storage.size(path) != len(picture.data):
            _ = picture.image
            self.storage.write(path, picture.data, durable=False)
        return picture.sha256

    def get(self, sha256: str) -> EncodedImage:
        """The picture of that hash.

        Raises:
            BadImageError: it is missing, or its bytes have another hash.
        """
        path = self.relative(sha256)
        try:
            picture = EncodedImage(self.storage.read(path))
        except FileNotFoundError as error:
            raise BadImageError(f"picture {self.url(sha256)} is missing: {_REMEDY}") from error
        if picture.sha256 != sha256:
            raise BadImageError(
                f"picture {self.url(sha256)} is damaged ({len(picture.data)} bytes of another "
                f"hash): delete it; {_REMEDY}"
            )
        return picture

    def exists(self, sha256: str) -> bool:
        return self.storage.exists(self.relative(sha256))

    def url(self, sha256: str) -> str:
        """Absolute path on a folder, URL elsewhere."""
        return self.storage.url(self.relative(sha256))

    def relative(self, sha256: str) -> str:
        """Path below the store's root, portable between homes."""
        if not _SHA256.fullmatch(sha256):
            raise BadImageError(f"{sha256!r} is not the sha256 of a picture")
        return f"{sha256[:2]}/{sha256}.png"
