"""Atomic writes, locks between processes, and SQLite files."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from schemas import StorageError
from warehouse import heartbeat_lock
from warehouse.atomic import atomic_path, atomic_write
from warehouse.file_lock import exclusive_lock
from warehouse.heartbeat_lock import is_free, is_locked, try_lock
from warehouse.sqlite_file import SqliteFile
from warehouse.verify import verify_database

CREATE = ("CREATE TABLE words (word TEXT)", "INSERT INTO words VALUES ('a;b')")


def fail(draft) -> None:
    draft.write_text("half")
    raise RuntimeError


def words(file: SqliteFile) -> list[str]:
    with file.transaction() as connection:
        return [row[0] for row in connection.execute("SELECT word FROM words")]


def add(file: SqliteFile, word: str) -> None:
    with file.transaction() as connection:
        connection.execute("INSERT INTO words (word) VALUES (?)", (word,))


def test_a_file_is_replaced_or_unchanged(tmp_path):
    target = tmp_path / "new" / "file.txt"
    atomic_write(target, "ä", durable=True)
    with pytest.raises(RuntimeError), atomic_path(target) as draft:
        fail(draft)
    assert target.read_bytes() == "ä".encode()
    assert list(target.parent.iterdir()) == [target]


def test_a_folder_is_replaced_or_unchanged(tmp_path):
    target = tmp_path / "folder"
    for content in ("old", "new"):
        with atomic_path(target) as draft:
            draft.mkdir()
            (draft / content).write_text(content)
    with pytest.raises(RuntimeError), atomic_path(target) as draft:
        draft.mkdir()
        fail(draft / "half")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "new"]


def test_a_fixed_temporary_name_is_cleared_first(tmp_path):
    leftover = tmp_path / "model.partial"
    leftover.mkdir()
    (leftover / "half").write_text("half")
    with atomic_path(tmp_path / "model", leftover) as draft:
        assert draft == leftover and not draft.exists()
        draft.mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["model"]


def test_a_lock_is_held_by_one_process_and_freed_by_its_death(tmp_path):
    path = tmp_path / "lock"
    hold = f"""
from pathlib import Path
from warehouse.file_lock import exclusive_lock
with exclusive_lock(Path({str(path)!r}), Exception()):
    print("held", flush=True)
    input()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(StorageError, match="in use"), exclusive_lock(path, StorageError("in use")):
        pass
    holder.kill()
    holder.communicate()
    with exclusive_lock(path, StorageError("in use")):
        pass


def test_every_use_is_one_transaction_of_several_threads(tmp_path):
    for fast_commits in (False, True):
        file = SqliteFile(tmp_path / f"{fast_commits}.sqlite", CREATE, fast_commits)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(partial(add, file), map(str, range(20))))
        with pytest.raises(RuntimeError), file.transaction() as connection:
            connection.execute("DELETE FROM words")
            raise RuntimeError
        assert len(words(file)) == 21
        file.close()


def test_files_that_are_damaged_or_of_another_version_are_named_with_a_remedy(tmp_path):
    path = tmp_path / "words.sqlite"
    with pytest.raises(StorageError, match="no such table: missing"):
        words(SqliteFile(path, [*CREATE, "DELETE FROM missing"]))
    assert words(SqliteFile(path, CREATE)) == ["a;b"]
    with pytest.raises(StorageError, match=r"words\.sqlite was made by another .*: move it away"):
        words(SqliteFile(path, [*CREATE, "CREATE TABLE lengths (length INTEGER)"]))
    add(SqliteFile(path, CREATE), "c")
    assert words(SqliteFile(path, CREATE)) == ["a;b", "c"]
    assert words(SqliteFile(path, [*CREATE, "CREATE TABLE x (x)"], durable=False)) == ["a;b"]
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match=r"words\.sqlite is damaged .*: move it away"):
        words(SqliteFile(path, CREATE))


def test_a_changed_value_and_a_changed_schema_are_damage(tmp_path):
    path = tmp_path / "words.sqlite"
    file = SqliteFile(path, CREATE)
    add(file, "ancient")
    assert verify_database(path) == []
    content = path.read_bytes()
    for old, new, problem in (
        (b"ancient", b"anciens", "missing from index words_checksums"),
        (b"word TEXT", b"word TEXS", "its schema is not as it was written"),
    ):
        path.write_bytes(content.replace(old, new))
        [damage] = verify_database(path)
        assert problem in damage.problem


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERLEAVE_LEASE_SECONDS", "1")
    heartbeat_lock._start_beating.cache_clear()  # a thread at this pace
    return tmp_path / "lock"


def test_it_is_shared_or_exclusive(path):
    assert is_free(path) and not is_locked(path)
    first, second = try_lock(path, shared=True), try_lock(path, shared=True)
    assert first and second and try_lock(path) is None
    assert not is_free(path) and not is_locked(path)
    first.release()
    second.release()
    exclusive = try_lock(path)
    assert is_locked(path) and try_lock(path) is None and try_lock(path, shared=True) is None
    exclusive.release()
    assert is_free(path)


def test_it_lasts_as_long_as_its_process(path):
    lock = try_lock(path)
    time.sleep(1.5)
    assert is_locked(path)
    heartbeat_lock._held.clear()  # as if that process had been killed
    time.sleep(1.5)
    assert is_free(path) and try_lock(path)
    lock.release()
