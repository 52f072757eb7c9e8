"""Packs the images of finished shards, and compresses their journals.

A pack is written completely, durably and under its name before the files of its images are deleted,
so that a kill at any moment leaves every image in at least one place. Readers look in both.
"""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice

from schemas import BadImageError, StorageError
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, SCORES

from .file_lock import exclusive_lock
from .home import Home, lease_seconds
from .image_pack import PACK, ImageRange, read_ranges, write_pack
from .images import ImageStore
from .object_journal import Lease

JOURNALS = ("plans", "trajectories", "scores")
_PENDING = ".pending"  # marks a pack whose images may still be files as well
_MAX_BYTES = 4 * 2**30  # of a pack; a shard with more gets several
_READERS, _AT_ONCE = 8, 64


@dataclass(frozen=True)
class CompactedShard:
    """What was done for a shard, or would be."""

    shard: str
    images: int
    bytes: int
    journals: int


def compact(home: Home, dry_run: bool = False) -> Iterator[CompactedShard]:
    """Pack the images of every finished shard and compress its journals.

    A shard is finished when it has scores and no run writes its journals. Images that are in a pack
    already stay there, those that are missing or damaged are left as they are. Yields the shards
    for which there was something to do.

    Raises:
        StorageError: another process compacts this home or removes garbage from it, or it cannot be
            read or written.
    """
    with maintenance_lock(home):
        if not dry_run:
            _finish_deletions(home.images)
        for shard in finished_shards(home):
            # Images are packed before, and what draws another one writes a line.
            if _compress(home, shard, dry_run=True):
                yield _compact_shard(home, shard, dry_run)


def pack_images(images: ImageStore, names: list[str], title: str) -> tuple[int, int]:
    """Move images that are files (sha256, sorted) to packs called `title`; how many, and bytes."""
    contents = _read(images, names)
    packs, count, size = images.packs.packs, 0, 0
    while (first := next(contents, None)) is not None:
        name = f"{title}-{secrets.token_hex(6)}"
        # Before the pack, so that what a kill leaves can be found without looking for all files.
        packs.write(name + _PENDING, b"", durable=False)
        with packs.draft(name + PACK) as draft:
            ranges = write_pack(draft, chain([first], contents), _MAX_BYTES)
            packs.put(name + PACK, draft)
        _delete_files(images, ranges)
        packs.delete_all([name + _PENDING])
        count, size = count + len(ranges), size + sum(each.length for each in ranges)
    return count, size


@contextmanager
def maintenance_lock(home: Home) -> Iterator[None]:
    """Let one process at a time, on any machine, move or delete images."""
    busy = f"another process compacts {home.root} or removes garbage from it: wait for it to end"
    if home.storage.has_conditional_writes:
        lease = Lease(home.storage.child("images"), "maintenance.json", lease_seconds())
        lease.acquire()
        try:
            yield
        finally:
            lease.release()
        return
    home.local.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(home.local / "maintenance.lock", StorageError(busy)):
        yield


def finished_shards(home: Home) -> Iterator[str]:
    """Shards that have scores, and whose journals no run writes."""
    attempted = set(home.lake.partitions(ATTEMPTS))
    for shard in home.lake.partitions(SCORES):
        journals = (home.journal(asset, shard) for asset in JOURNALS)
        if shard in attempted and not any(journal.is_in_use for journal in journals):
            yield shard


def _compact_shard(home: Home, shard: str, dry_run: bool) -> CompactedShard:
    pack = _files_to_pack if dry_run else pack_images
    images, size = pack(home.images, _unpacked(home, shard), shard)
    return CompactedShard(shard, images, size, _compress(home, shard, dry_run))


def _compress(home: Home, shard: str, dry_run: bool) -> int:
    """Compress the shard's journals; how many had something to compress."""
    return sum(home.journal(asset, shard).compress(dry_run) for asset in JOURNALS)


def _unpacked(home: Home, shard: str) -> list[str]:
    """Sorted hashes of the shard's images that are in no pack."""
    attempts = home.lake.read(ATTEMPTS, [shard], ["image", "source_image"])
    names = {name for column in attempts.columns for name in column.to_pylist() if name}
    prompts = home.lake.read(PROMPTS, [shard], ["input_images"])
    names |= {name for row in prompts["input_images"].to_pylist() for name in row}
    # Images of calls whose answers no attempt has, such as those that were drawn ahead.
    for record in home.journal("trajectories", shard).records():
        if record["call"]["role"] == "generator" and record["answer"]:
            names.add(record["answer"]["image"])
    return sorted(name for name in names if not home.images.packs.find(name))


def _read(images: ImageStore, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """(sha256, bytes) of images that can be read, in order."""

    def read(name: str) -> tuple[str, bytes] | None:
        try:
            return name, images.get(name).data
        except BadImageError:  # what to do about it is for the checks and for `verify`
            return None

    rest = iter(names)
    with ThreadPoolExecutor(_READERS) as readers:
        while some := list(islice(rest, _AT_ONCE)):
            yield from filter(None, readers.map(read, some))


def _finish_deletions(images: ImageStore) -> None:
    """Delete the files that a killed process left beside its pack."""
    packs = images.packs.packs
    for name in packs.names(_PENDING):
        pack = name.removesuffix(_PENDING) + PACK
        if packs.exists(pack):
            _delete_files(images, read_ranges(packs, pack))
        packs.delete_all([name])


def _delete_files(images: ImageStore, packed: list[ImageRange]) -> None:
    images.packs.refresh()
    images.storage.delete_all([images.relative_path(each.sha256) for each in packed])


def _files_to_pack(images: ImageStore, names: list[str], title: str) -> tuple[int, int]:
    """How many images `pack_images` would pack, and their bytes."""
    stats = [images.storage.stat(images.relative_path(name)) for name in names]
    sizes = [stat.size for stat in stats if stat]
    return len(sizes), sum(sizes)
