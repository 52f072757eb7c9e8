"""The home: one root for lake and images, and a local folder for everything else."""

import os
import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from schemas import StorageError

from .images import ImageStore
from .journal import COMPRESSED, LINES, Journal
from .lake import Lake
from .object_journal import LEASE_FILE, ObjectJournal
from .partition_index import PartitionIndex
from .storage import Storage, safe_name

AnyJournal = Journal | ObjectJournal


class Home:
    """The places of all stored data.

    Args:
        root: a folder or any fsspec URL (`s3://bucket/data`, `memory://x`) for `lake/` and
            `images/`, on S3 for the journals as well. `warehouse.duckdb`, `dagster/`, `exports/`
            and `checkpoints/` need a local folder: the root itself, or for a remote root
            $INTERLEAVE_LOCAL, by default a folder below `.interleave/`.

    Raises:
        StorageError: the root is a file, or its protocol is unknown.
    """

    def __init__(self, root: str | Path) -> None:
        url = str(root)
        self.root = url if "://" in url else str(Path(url).expanduser().absolute())
        self.storage = Storage.at(self.root)
        if self.storage.is_local and Path(self.storage.root).is_file():
            raise StorageError(f"{self.root} is a file: point INTERLEAVE_HOME at a folder")

    @classmethod
    def from_env(cls) -> "Home":
        """The home of $INTERLEAVE_HOME, by default `.interleave/` in the working directory."""
        return cls(os.environ.get("INTERLEAVE_HOME") or ".interleave")

    @cached_property
    def lake(self) -> Lake:
        """Its tables; StorageError: it was made by a version that merged table files."""
        merged = self.storage.child("lake/scores/_merged")
        if any(not name.startswith("_") for name in merged.names(".parquet")):
            raise StorageError(
                f"{merged.url()} was merged by an earlier version, which this one does not read: "
                "start a new home; journals/ and images/ copied there spare it the calls"
            )
        index = None if self.root.startswith("memory:") else self.local / "partitions.sqlite"
        return Lake(self.storage.child("lake"), PartitionIndex(index))

    @cached_property
    def images(self) -> ImageStore:
        return ImageStore(self.storage.child("images"), self.local / "image-packs.sqlite")

    @cached_property
    def local(self) -> Path:
        """Local folder for data that cannot be on a remote file system."""
        if self.storage.is_local:
            return Path(self.storage.root)
        name = re.sub(r"[^A-Za-z0-9]+", "-", self.root).strip("-")
        return Path(os.environ.get("INTERLEAVE_LOCAL") or f".interleave/{name}").absolute()

    @property
    def warehouse(self) -> Path:
        """DuckDB's file, see `refresh_views`."""
        return self.local / "warehouse.duckdb"

    @property
    def dagster(self) -> Path:
        return self.local / "dagster"

    @property
    def exports(self) -> Path:
        return self.local / "exports"

    @property
    def hub(self) -> Path:
        """What was pulled from the Hub, a folder per repository."""
        return self.local / "hub"

    def journal(self, asset: str, shard: str) -> AnyJournal:
        asset, shard = safe_name(asset, "asset"), safe_name(shard, "shard")
        if self.storage.has_conditional_writes:
            return ObjectJournal(self.storage.child(f"journals/{asset}/{shard}"), lease_seconds())
        return Journal(self.local / "journals" / asset / f"{shard}.jsonl")

    def journals(self, asset: str) -> list[str]:
        """Sorted names of the shards that have a journal of an asset."""
        asset = safe_name(asset, "asset")
        if self.storage.has_conditional_writes:
            return sorted(dict(self.storage.files(f"journals/{asset}", LEASE_FILE)))
        files = [path.name for path in (self.local / "journals" / asset).glob("*.jsonl*")]
        names = (name.removesuffix(suffix) for name in files for suffix in (LINES, COMPRESSED))
        return sorted({name for name in names if name not in files})

    def __repr__(self) -> str:
        return f"Home({self.root!r})"


def lease_seconds() -> float:
    """How long others wait for a process that died ($INTERLEAVE_LEASE_SECONDS), by default 60."""
    text = os.environ.get("INTERLEAVE_LEASE_SECONDS") or "60"
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < float("inf"):
            return seconds
    raise StorageError(f"INTERLEAVE_LEASE_SECONDS is {text!r}: set it to a number of seconds")
