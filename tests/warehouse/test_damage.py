"""Single flipped bits in a table's file: read rows are those that were written, or an error."""

import random
from pathlib import Path

import pytest

from schemas import SchemaMismatchError, StorageError
from schemas.trajectories import ATTEMPTS

FLIPS = 300


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


def test_a_file_that_was_cut_off_is_an_error(home, attempts):
    home.lake.write(ATTEMPTS, attempts(40), "sketchbook-0000")
    [file] = Path(home.root, "lake", "attempts", "sketchbook-0000").glob("*.parquet")
    content = file.read_bytes()
    for kept in (0, 3, 100, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:kept])
        assert home.lake.content_hash(ATTEMPTS, "sketchbook-0000") is None
        with pytest.raises(StorageError, match=r"is damaged .*materialize attempts again"):
            home.lake.read(ATTEMPTS)
