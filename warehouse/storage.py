"""Whole files on any fsspec filesystem: a file is there complete under its name, or not at all.

A folder gets temporary file and rename; an object store's put is atomic by itself. Whatever goes
wrong becomes one `StorageError` line, and what was stored before stays as it was.
"""

import errno
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from schemas import StorageError

from .atomic import atomic_write

_TEMPORARY = ".tmp"
_STALE_SECONDS = 24 * 3600
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
    """`name`, if it can stand in a path and in SQL as it is.

    Raises:
        StorageError: it has characters other than letters, digits, `.`, `_`, `-`, or is too long.
    """
    if not _NAME.fullmatch(name):
        raise StorageError(
            f"{what} {name!r} cannot name a file: use letters, digits, '.', '_' and '-'"
        )
    return name


def first_line(error: BaseException) -> str:
    """An exception as one line; of a traceback passed on by DuckDB, the line that says what."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


@contextmanager
def storage_errors(action: str, where: object) -> Iterator[None]:
    """Turn whatever a filesystem throws into one line that says what failed and what to do.

    A file that is not there to be read is for the caller to judge: `FileNotFoundError` passes.
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
    except Exception as error:  # object stores throw their client library's own classes
        raise StorageError(f"{where} cannot be {action}: {first_line(error)}") from error


class Storage:
    """A folder of whole files.

    Args:
        fs: the fsspec filesystem.
        root: path of the folder on it, without protocol.
    """

    def __init__(self, fs: Any, root: str) -> None:
        self.fs = fs
        self.root = root.rstrip("/")
        self._swept = False

    @classmethod
    def at(cls, url: str) -> "Storage":
        """The storage at a path or fsspec URL.

        Raises:
            StorageError: unknown protocol, or its package is not installed.
        """
        import fsspec

        with storage_errors("opened", url):
            fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        return cls(fs, root)

    @property
    def is_local(self) -> bool:
        return "file" in _protocols(self.fs)

    @property
    def has_conditional_writes(self) -> bool:
        """Whether `write_if` works here: on S3, and on what speaks its API."""
        return "s3" in _protocols(self.fs)

    def child(self, name: str) -> "Storage":
        return Storage(self.fs, f"{self.root}/{name}")

    def url(self, path: str = "") -> str:
        """Absolute path on a folder, URL elsewhere."""
        full = f"{self.root}/{path}".rstrip("/")
        return full if self.is_local else str(self.fs.unstrip_protocol(full))

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError when there is no such file, StorageError on anything else."""
        with storage_errors("read", self.url(path)):
            return bytes(self.fs.cat_file(f"{self.root}/{path}"))

    def write(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace a file at once; `durable` also survives a power cut (local folders)."""
        with storage_errors("written", self.url(path)):
            if self.is_local:
                self._write_local(path, data, durable)
            else:
                self.fs.pipe_file(f"{self.root}/{path}", data)

    def write_if(self, path: str, data: bytes, version: str | None) -> str | None:
        """Write a file if it is still what was read, or (None) still not there.

        Returns:
            Its new version; None when somebody else was faster.
        """
        bucket, key, _ = self.fs.split_path(f"{self.root}/{path}")
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        with storage_errors("written", self.url(path)):
            try:
                put = self.fs.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition)
            except OSError as error:
                if _somebody_was_faster(error):
                    return None
                raise
        return str(put["ETag"])

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        """A file and its version, or a version before it; None when there is no such file."""
        with storage_errors("read", self.url(path)):
            try:
                version = self.fs.info(f"{self.root}/{path}", refresh=True)["ETag"]
                return bytes(self.fs.cat_file(f"{self.root}/{path}")), str(version)
            except FileNotFoundError:
                return None

    def exists(self, path: str) -> bool:
        with storage_errors("read", self.url(path)):
            return bool(self.fs.exists(f"{self.root}/{path}"))

    def size(self, path: str) -> int | None:
        """Bytes; None when there is no such file."""
        with storage_errors("read", self.url(path)):
            try:
                return int(self.fs.size(f"{self.root}/{path}"))
            except FileNotFoundError:
                return None

    def find(self, folder: str, name: str) -> Iterator[str]:
        """Paths of the files called `name` one folder below `folder`."""
        with storage_errors("listed", self.url(folder)):
            if self.is_local:
                # Lazily, and without a pattern in the root, which may have brackets in its name.
                for found in Path(self.root, folder).glob(f"*/{name}"):
                    yield f"{folder}/{found.parent.name}/{name}"
            else:
                for path in self.fs.find(f"{self.root}/{folder}"):
                    if path.endswith(f"/{name}"):
                        yield path.removeprefix(f"{self.root}/")

    def names(self) -> list[str]:
        """Names of the files in this folder, sorted."""
        with storage_errors("listed", self.url()):
            found = self.fs.find(self.root, maxdepth=1)
        return sorted(path.rsplit("/", 1)[1] for path in found)

    def read_all(self, paths: Iterable[str]) -> list[bytes]:
        """Many files at once. Raises FileNotFoundError when one is not there."""
        wanted = [f"{self.root}/{path}" for path in paths]
        with storage_errors("read", self.url()):
            found = self.fs.cat(wanted, on_error="raise") if wanted else {}
        return [bytes(found[path]) for path in wanted]

    def delete(self, path: str) -> None:
        """Remove a file, and its folder when it was the last; nothing happens if it is missing."""
        with storage_errors("deleted", self.url(path)), suppress(FileNotFoundError):
            self.fs.rm_file(f"{self.root}/{path}")
        if self.is_local:
            with suppress(OSError):
                Path(self.root, path).parent.rmdir()

    def _write_local(self, path: str, data: bytes, durable: bool) -> None:
        temporary = self._temporary_folder() / f"{os.getpid()}-{secrets.token_hex(6)}"
        atomic_write(Path(self.root, path), data, durable, temporary)

    def _temporary_folder(self) -> Path:
        folder = Path(self.root, _TEMPORARY)
        folder.mkdir(parents=True, exist_ok=True)
        if not self._swept:
            _sweep(folder)
            self._swept = True
        return folder


def _sweep(folder: Path) -> None:
    """Remove what killed writers left behind; a living one is done within a day."""
    for leftover in folder.iterdir():
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                leftover.unlink()


def _somebody_was_faster(error: OSError) -> bool:
    """S3's answers to a conditional write that came too late."""
    response = getattr(error.__cause__, "response", None) or {}
    codes = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409"}
    return response.get("Error", {}).get("Code") in codes


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
