"""sha256 of a folder's files, as `sha256sum --check` reads them."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from .atomic import atomic_write

SUMS_FILE = "SHA256SUMS"

_IMAGE = re.compile(r"/[0-9a-f]{64}\.png$")
_SUM = re.compile(r"([0-9a-f]{64})  (.+)")


def write_sums(folder: Path, known: Mapping[str, str] | None = None) -> None:
    """Write `SUMS_FILE` for all files below a folder but images whose names are their hashes.

    Args:
        known: hashes that need not be computed, by path below the folder.
    """
    known = known or {}
    lines = [
        f"{known.get(name) or file_sha256(folder / name)}  {name}\n" for name in _files(folder)
    ]
    atomic_write(folder / SUMS_FILE, "".join(lines))


def read_sums(folder: Path) -> dict[str, str]:
    """Hashes by path below the folder.

    Raises:
        FileNotFoundError: it has no `SUMS_FILE`.
        ValueError: a line of it has another form.
    """
    lines = (folder / SUMS_FILE).read_bytes().decode().splitlines()
    found = [match for line in lines if (match := _SUM.fullmatch(line))]
    if len(found) < len(lines):
        raise ValueError("a line is not a sha256 and a path")
    return {match[2]: match[1] for match in found}


def difference(path: Path, sha256: str) -> str | None:
    """What is wrong with a file; None: it has that hash."""
    try:
        same = file_sha256(path) == sha256
        return None if same else "has another content than when it was written"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> list[str]:
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if not _IMAGE.search(name) and name != SUMS_FILE)
