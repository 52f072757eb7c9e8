"""Atomic files on any fsspec file system: a file exists completely, or not at all.

Local folders use a temporary file and a rename; object stores put atomically. Every failure
becomes a `StorageError` of one line, and what was stored before is unchanged.
"""

import errno
import hashlib
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from schemas import StorageError

from .atomic import atomic_write

# Requests that S3 throttles (503 SlowDown) are repeated, with jitter, for up to a minute or so;
# s3fs itself repeats those five times over whose answer says so, which that to a HEAD does not.
_S3_OPTIONS = {"config_kwargs": {"retries": {"mode": "standard", "max_attempts": 10}}}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_REMEDIES = {
    errno.ENOSPC: "no space left on the device; free some and run again",
    errno.EDQUOT: "the disk quota is used up; free some space and run again",
    errno.EFBIG: "the file-size limit of this process is reached; raise it and run again",
    errno.EROFS: "the file system is read-only; point INTERLEAVE_HOME at a writable folder",
    errno.EACCES: "no permission; point INTERLEAVE_HOME at a folder of yours",
    errno.EPERM: "no permission; point INTERLEAVE_HOME at a folder of yours",
    errno.ENOTDIR: "a file is in the way; point INTERLEAVE_HOME at a folder",
    errno.EEXIST: "a file is in the way; point INTERLEAVE_HOME at a folder",
    errno.EISDIR: "a folder is in the way; move it and run again",
}


def safe_name(name: str, what: str) -> str:
    """`name` of a `what`; StorageError: it is not safe in a path and in SQL, or too long."""
    if not _NAME.fullmatch(name):
        raise StorageError(
            f"{what} {name!r} cannot name a file: use letters, digits, '.', '_' and '-'"
        )
    return name


def first_line(error: BaseException) -> str:
    """An exception's message as one line; of a traceback (DuckDB passes some on), the last one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


@contextmanager
def storage_errors(action: str, where: object) -> Iterator[None]:
    """Turn a file system's errors into one line that says what failed and what to do.

    `FileNotFoundError` passes where the action is `read`.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError) and action == "read":
            raise
        remedy = _REMEDIES.get(error.errno or 0) or error.strerror or first_line(error)
        raise StorageError(f"{where} cannot be {action}: {remedy}") from error
    except Exception as error:  # object stores raise their client library's own classes
        raise StorageError(f"{where} cannot be {action}: {first_line(error)}") from error


class FileStat(NamedTuple):
    """Size in bytes, and seconds since the file was written."""

    size: int
    age: float


class FileState(NamedTuple):
    """Size in bytes and version of a file: its ETag, else its time of modification in ns.

    A file system without either gives an empty version.
    """

    size: int
    version: str


class StoredVersion(NamedTuple):
    """A file of an object store as it was read. `age`: seconds since it was written, in full
    seconds of the store's clock, which is that of no worker."""

    data: bytes
    version: str
    age: float


@dataclass(eq=False)
class Storage:
    """A folder (its path without protocol) of files that are read and written as a whole."""

    fs: Any  # of fsspec
    root: str

    @classmethod
    def at(cls, url: str) -> "Storage":
        """The storage at a path or fsspec URL; StorageError: no package for its protocol."""
        import fsspec

        options = _S3_OPTIONS if url.startswith(("s3://", "s3a://")) else {}
        with storage_errors("opened", url):
            fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False, **options)
        return cls(fs, root.rstrip("/"))

    @property
    def is_local(self) -> bool:
        return "file" in _protocols(self.fs)

    @property
    def has_conditional_writes(self) -> bool:
        """Whether `write_if` works: on S3 and stores with its API."""
        return "s3" in _protocols(self.fs)

    def child(self, name: str) -> "Storage":
        return Storage(self.fs, f"{self.root}/{name}")

    def url(self, path: str = "") -> str:
        """Absolute path of a local file, URL of a remote one."""
        full = f"{self.root}/{path}".rstrip("/")
        return full if self.is_local else str(self.fs.unstrip_protocol(full))

    def read(self, path: str) -> bytes:
        """The bytes of a file; FileNotFoundError: there is none, else StorageError."""
        # In one request: s3fs asks for the size first where it may read parts at the same time.
        options = {"max_concurrency": 1} if self.has_conditional_writes else {}
        with storage_errors("read", self.url(path)):
            return bytes(self.fs.cat_file(f"{self.root}/{path}", **options))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """A part of a file, shorter where the file ends before; raises what `read` does."""
        with storage_errors("read", self.url(path)):
            if not self.is_local:
                end = offset + length
                return bytes(self.fs.cat_file(f"{self.root}/{path}", start=offset, end=end))
            with Path(self.root, path).open("rb", buffering=0) as file:
                return os.pread(file.fileno(), length, offset)

    def open(self, path: str) -> Any:
        """A binary file to read from; raises what `read` does."""
        with storage_errors("read", self.url(path)):
            return self.fs.open(f"{self.root}/{path}")

    def write(self, path: str, data: bytes, durable: bool = True) -> FileState:
        """Replace a file atomically; `durable`: survive a power cut as well (local folders)."""
        with storage_errors("written", self.url(path)):
            if self.is_local:
                state = atomic_write(Path(self.root, path), data, durable, self._temporary_file())
                return _local_state(state)
            self.fs.pipe_file(f"{self.root}/{path}", data)
        # The ETag that S3 gives an object that is put at once (unless it is encrypted by KMS).
        return FileState(len(data), f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"')

    @contextmanager
    def draft(self, path: str) -> Iterator[Path]:
        """A local file to write what `put` then moves to `path`; removed when the block ends."""
        if not self.is_local:
            with tempfile.TemporaryDirectory(prefix="interleave-") as folder:
                yield Path(folder, "draft")
            return
        with storage_errors("written", self.url(path)):
            draft = self._temporary_file()
        try:
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def put(self, path: str, draft: Path) -> "FileState | None":
        """Replace a file atomically and durably by a `draft`; its state, where that is known."""
        with storage_errors("written", self.url(path)):
            if not self.is_local:
                self.fs.put_file(str(draft), f"{self.root}/{path}")
                return None
            target = Path(self.root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            _sync(draft)
            draft.replace(target)
            _sync(target.parent)
            return _local_state(target.stat())

    @contextmanager
    def snapshot(self, path: str) -> Iterator[BinaryIO]:
        """A file as it is now, to be read in parts; FileNotFoundError: there is none."""
        with tempfile.TemporaryDirectory(prefix="interleave-") as folder:
            local = Path(self.root, path)
            with storage_errors("read", self.url(path)):
                if not self.is_local:
                    local = Path(folder, "copy")
                    self.fs.get_file(f"{self.root}/{path}", str(local))
                file = local.open("rb")
            with file:
                yield file

    def write_if(self, path: str, data: bytes, version: str | None) -> str | None:
        """Write a file if its version is still `version` (None: if it does not exist); returns
        its new version, or None when another writer came first."""
        bucket, key, _ = self.fs.split_path(f"{self.root}/{path}")
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        with storage_errors("written", self.url(path)):
            try:
                put = self.fs.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition)
            except OSError as error:
                if _is_conflict(error):
                    return None
                raise
        return str(put["ETag"])

    def read_version(self, path: str) -> StoredVersion | None:
        """A file's bytes and its version, or an earlier version; None: there is no such file."""
        bucket, key, _ = self.fs.split_path(f"{self.root}/{path}")
        with storage_errors("read", self.url(path)), suppress(FileNotFoundError):
            head = self.fs.call_s3("head_object", Bucket=bucket, Key=key)
            now = parsedate_to_datetime(head["ResponseMetadata"]["HTTPHeaders"]["date"])
            age = (now - head["LastModified"]).total_seconds()
            return StoredVersion(bytes(self.fs.cat_file(f"{self.root}/{path}")), head["ETag"], age)
        return None

    def exists(self, path: str) -> bool:
        with storage_errors("read", self.url(path)):
            return bool(self.fs.exists(f"{self.root}/{path}"))

    def stat(self, path: str) -> FileStat | None:
        """Size and age of a file; None: there is no such file."""
        with storage_errors("read", self.url(path)), suppress(FileNotFoundError):
            return _stat(self.fs.info(f"{self.root}/{path}"))
        return None

    def touch(self, path: str) -> None:
        """Make a file new again without changing it, if it exists."""
        with storage_errors("written", self.url(path)), suppress(FileNotFoundError):
            if self.is_local:
                os.utime(f"{self.root}/{path}")
            else:
                self.fs.pipe_file(f"{self.root}/{path}", self.fs.cat_file(f"{self.root}/{path}"))

    def walk(self, skipped: Sequence[str] = ()) -> Iterator[tuple[str, FileStat]]:
        """Sorted paths of all files at any depth, without those folders and files at the top."""
        with storage_errors("listed", self.url()):
            for top in self._top():
                if top.rpartition("/")[2] not in skipped:
                    for path, info in self.fs.find(top, detail=True).items():
                        yield path.removeprefix(f"{self.root}/"), _stat(info)

    def _top(self) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(path.rstrip("/") for path in self.fs.ls(self.root, detail=False))
        return []

    def files(self, folder: str, name: str) -> Iterator[tuple[str, FileState]]:
        """The folders in `folder` that have a file `name`, and its state."""
        with storage_errors("listed", self.url(folder)):
            if self.is_local:
                yield from _local_files(f"{self.root}/{folder}", name)
                return
            for path, info in self.fs.find(f"{self.root}/{folder}", detail=True).items():
                if path.endswith(f"/{name}"):
                    state = FileState(int(info["size"]), str(info.get("ETag") or ""))
                    yield path.split("/")[-2], state

    def names(self, suffix: str) -> list[str]:
        """Names of the files in this folder that end in `suffix`, sorted."""
        with storage_errors("listed", self.url()):
            paths = self.fs.find(self.root, maxdepth=1)
        return sorted(path.rsplit("/", 1)[1] for path in paths if path.endswith(suffix))

    def read_all(self, paths: Iterable[str]) -> list[bytes]:
        """The bytes of many files, as `read` does."""
        names = [f"{self.root}/{path}" for path in paths]
        with storage_errors("read", self.url()):
            contents = self.fs.cat(names, on_error="raise") if names else {}
        return [bytes(contents[name]) for name in names]

    def delete(self, path: str) -> None:
        """Remove a file, if it exists, and its folder, if that is empty then."""
        with storage_errors("deleted", self.url(path)), suppress(FileNotFoundError):
            self.fs.rm_file(f"{self.root}/{path}")
        if self.is_local:
            with suppress(OSError):
                Path(self.root, path).parent.rmdir()

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove those files that exist; their folders stay, for writers that use them."""
        names = [f"{self.root}/{path}" for path in paths]
        with storage_errors("deleted", self.url()):
            if hasattr(self.fs, "bulk_delete"):
                self.fs.rm(names)
                return
            for name in names:
                with suppress(FileNotFoundError):
                    self.fs.rm_file(name)

    def _temporary_file(self) -> Path:
        """A path for a draft; `garbage.py` removes those of killed writers."""
        folder = Path(self.root, ".tmp")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{os.getpid()}-{secrets.token_hex(6)}"


def _stat(info: dict[str, Any]) -> FileStat:
    modified = info.get("mtime") or info.get("LastModified") or info["created"]
    stamp = modified.timestamp() if isinstance(modified, datetime) else float(modified)
    return FileStat(int(info["size"]), time.time() - stamp)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _local_files(folder: str, name: str) -> Iterator[tuple[str, FileState]]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError, NotADirectoryError):
                # Not by Path, which takes half of the time where there are ten thousand.
                state = os.stat(f"{entry.path}/{name}")  # noqa: PTH116
                yield entry.name, _local_state(state)


def _local_state(stat: os.stat_result) -> FileState:
    return FileState(stat.st_size, str(stat.st_mtime_ns))


def _is_conflict(error: OSError) -> bool:
    """Whether S3 rejected a conditional write because another came first."""
    response = getattr(error.__cause__, "response", None) or {}
    codes = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409"}
    return response.get("Error", {}).get("Code") in codes


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
