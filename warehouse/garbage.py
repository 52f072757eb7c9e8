"""Removes images that nothing refers to, and what killed processes left.

An image counts as garbage only if its file or pack is older than a grace period: what refers to a
new image may not be written yet. `ImageStore.put` makes old copies new, so that this holds for an
image that is stored again, too.
"""

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .atomic import remove
from .compaction import maintenance_lock, pack_images
from .home import Home
from .image_pack import PACK, ImageRange, damaged_images, read_ranges
from .images import ImageStore
from .references import HashSet, referenced_images

_REWRITE_SHARE = 0.3  # of a pack's bytes that are garbage
_DRAFT = re.compile(r"\..+-[0-9a-f]{8,12}\.tmp(\.old)?")  # see `atomic_path`


@dataclass(frozen=True)
class Garbage:
    """Something that was removed, or would be.

    Args:
        kind: image, copy (of an image that is in a pack as well), packed image, or draft (of a
            process that was killed).
        where: path or URL; of a packed image, that of its pack.
    """

    kind: str
    where: str
    bytes: int


def collect_garbage(home: Home, grace_seconds: float, dry_run: bool = False) -> Iterator[Garbage]:
    """Remove what nothing refers to and is older than `grace_seconds`.

    Packs are rewritten where more than 30 % of their bytes are garbage.

    Raises:
        StorageError: another process does this or compacts, a file cannot be searched for what it
            refers to, or something cannot be read or deleted.
    """
    with maintenance_lock(home):
        referenced = referenced_images(home)
        yield from _files(home.images, referenced, grace_seconds, dry_run)
        for name in home.images.packs.packs.names(PACK):
            yield from _pack(home.images, name, referenced, grace_seconds, dry_run)
        yield from _drafts(home, grace_seconds, dry_run)


def _files(
    images: ImageStore, referenced: HashSet, grace_seconds: float, dry_run: bool
) -> Iterator[Garbage]:
    for path, stat in images.files():
        sha256 = Path(path).stem
        if stat.age <= grace_seconds:
            continue
        if sha256 not in referenced:
            kind = "image"
        elif _other_copy(images, sha256):
            kind = "copy"
        else:
            continue
        if not dry_run:
            images.storage.delete_all([path])
        yield Garbage(kind, images.storage.url(path), stat.size)


def _pack(
    images: ImageStore, name: str, referenced: HashSet, grace_seconds: float, dry_run: bool
) -> Iterator[Garbage]:
    packs = images.packs.packs
    stat = packs.stat(name)
    if stat is None or stat.age <= grace_seconds:
        return
    ranges = read_ranges(packs, name)
    garbage = [
        each
        for each in ranges
        if each.sha256 not in referenced or _other_copy(images, each.sha256, name)
    ]
    if _bytes(garbage) <= _REWRITE_SHARE * _bytes(ranges):
        return
    live = sorted({each.sha256 for each in ranges} - {each.sha256 for each in garbage})
    if set(live) & set(damaged_images(packs, name)):
        return  # `interleave verify` says so; nothing that may be repaired is thrown away
    if not dry_run:
        pack_images(images, live, name.rpartition("-")[0])
        packs.delete_all([name])
        images.packs.refresh()
    for each in garbage:
        yield Garbage("packed image", f"{packs.url(name)}#{each.sha256}", each.length)


def _other_copy(images: ImageStore, sha256: str, pack: str = "") -> bool:
    """Whether another pack has the image, undamaged."""
    for place in images.packs.find(sha256):
        if place.pack != pack:
            with suppress(FileNotFoundError):
                data = images.packs.packs.read_range(*place)
                if hashlib.sha256(data).hexdigest() == sha256:
                    return True
    return False


def _bytes(ranges: list[ImageRange]) -> int:
    return sum(each.length for each in ranges)


def _drafts(home: Home, grace_seconds: float, dry_run: bool) -> Iterator[Garbage]:
    """Temporary files and folders of killed processes, in the local folder."""
    folders = (home.local / "lake", home.local / "images", home.local / "images" / "packs")
    found = [path for folder in folders for path in folder.glob(".tmp/*")]
    found += [path for path in home.local.rglob(".*.tmp*") if _DRAFT.fullmatch(path.name)]
    found += (home.local / "journals").glob("*/*.partial")
    for path in found:
        with suppress(FileNotFoundError):
            stat = path.stat()
            if time.time() - stat.st_mtime > grace_seconds:
                if not dry_run:
                    remove(path)
                yield Garbage("draft", str(path), stat.st_size)
