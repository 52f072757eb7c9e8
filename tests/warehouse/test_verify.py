"""Damage of tables, images and journals is found; read rows are those that were written."""

import random
import subprocess
from pathlib import Path

import pytest

from schemas import SchemaMismatchError, StorageError
from schemas.trajectories import ATTEMPTS
from warehouse.sql import query
from warehouse.verify import find_damage, journal_checks, write_sums
from warehouse.views import refresh_views

SHARD = "sketchbook-0000"
FLIPS = 300


def damage(home):
    return list(find_damage(journal_checks(home), threads=4))


def test_the_last_lines_damaged_newline_is_noticed_and_restored(home):
    with home.journal("plans", SHARD) as journal:
        journal.append({"number": 0})
    content = journal.path.read_bytes()
    journal.path.write_bytes(content[:-1] + b"\x0b")
    [found] = damage(home)
    assert found.file == f"{journal.path}:1"
    with home.journal("plans", SHARD):
        assert journal.path.read_bytes() == content
    journal.path.write_bytes(content + content[: len(content) // 2])  # cut off by a kill
    assert damage(home) == []


def test_hashes_of_a_folder_are_those_of_sha256sum(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / f"{'a' * 64}.png").write_bytes(b"its name is its hash")
    (tmp_path / "weights").write_bytes(b"1234")
    write_sums(tmp_path)
    check = ["sha256sum", "--check", "SHA256SUMS"]
    assert subprocess.check_output(check, cwd=tmp_path, text=True) == "weights: OK\n"


def flipped(content: bytes, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_no_flipped_bit_gives_other_rows(home, attempts):
    home.lake.write(ATTEMPTS, attempts(40), "sketchbook-0000")
    written = home.lake.read(ATTEMPTS)
    [file] = Path(home.root, "lake", "attempts", "sketchbook-0000").glob("*.parquet")
    content, noticed = file.read_bytes(), 0
    for bit in random.Random(7).sample(range(len(content) * 8), FLIPS):
        file.write_bytes(flipped(content, bit))
        try:
            rows = home.lake.read(ATTEMPTS)
        except (StorageError, SchemaMismatchError) as error:
            noticed += 1
            assert str(file) in str(error) or "partition sketchbook-0000" in str(error)
            assert "materialize attempts again" in str(error) and "\n" not in str(error)
        else:
            assert rows.equals(written), f"bit {bit}"
    assert noticed > FLIPS / 3, "the others are in parts of the footer that nobody reads"


def test_a_file_that_was_cut_off_is_an_error_and_can_be_replaced(home, attempts):
    """Other tables are usable meanwhile."""
    written = home.lake.write(ATTEMPTS, attempts(40), "sketchbook-0000")
    home.lake.write(ATTEMPTS, attempts(8), "sketchbook-0001")
    refresh_views(home)
    content = Path(written.url).read_bytes()
    for kept in (0, 3, 100, len(content) // 2, len(content) - 1):
        Path(written.url).write_bytes(content[:kept])
        assert home.lake.content_hash(ATTEMPTS, "sketchbook-0000") is None
        for read in (home.lake.read, lambda _: query("SELECT count(*) FROM attempts", home)):
            with pytest.raises(StorageError, match=r"0000/part-0\.parquet is damaged") as error:
                read(ATTEMPTS)
            assert "materialize attempts again" in str(error.value)
            assert "\n" not in str(error.value)
    assert query("SELECT count(*) AS n FROM prompts", home)["n"].tolist() == [0]
    assert home.lake.write(ATTEMPTS, attempts(40), "sketchbook-0000").changed
    assert home.lake.rows(ATTEMPTS) == 48
