"""Local files and folders that are complete under their name, or not there at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: Path, temporary: Path | None = None) -> Iterator[Path]:
    """A path to write a file or a folder at, renamed to `target` when the block ends.

    The parent of `target` is created. If the block raises, what it wrote is removed, and an
    earlier `target` stays as it was.

    Args:
        temporary: a path on the same file system, cleared first; by default a unique hidden name
            beside `target`. Where only one process writes, a fixed name lets the next attempt
            remove what a killed one wrote.
    """
    draft = temporary or target.with_name(f".{target.name}-{secrets.token_hex(6)}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove(draft)
    try:
        yield draft
        _move(draft, target)
    finally:
        _remove(draft)


def atomic_write(
    target: Path, content: bytes | str, durable: bool = False, temporary: Path | None = None
) -> os.stat_result:
    """Replace a file by `content` (text as UTF-8), as `atomic_path` does; `durable`: survive a
    power cut as well (fsync before the rename). Returns the state of what was written."""
    with atomic_path(target, temporary) as draft, draft.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        if durable:
            os.fsync(file.fileno())
        return os.fstat(file.fileno())


def _move(draft: Path, target: Path) -> None:
    if not (draft.is_dir() and target.exists()):
        draft.replace(target)
        return
    retired = draft.with_name(f"{draft.name}.old")  # a rename replaces no folder that has files
    target.rename(retired)
    try:
        draft.rename(target)
    except OSError:
        retired.rename(target)
        raise
    _remove(retired)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
