"""Damage of tables, images and journals in a folder and in memory."""

import subprocess

from schemas.trajectories import ATTEMPTS
from tests.warehouse.conftest import WITHOUT_S3
from warehouse.verify import find_damage, image_checks, journal_checks, table_checks, write_sums

SHARD = "sketchbook-0000"


def damage(home):
    checks = [*table_checks(home), *image_checks(home), *journal_checks(home)]
    return list(find_damage(checks, threads=4))


@WITHOUT_S3
def test_every_store_is_verified(any_home, attempts, image):
    home = any_home
    home.lake.write(ATTEMPTS, attempts(4, image=image.sha256, source_image=None), SHARD)
    home.images.put(image)
    with home.journal("plans", SHARD) as journal:
        for number in range(3):
            journal.append({"number": number})
    assert damage(home) == []

    storage, table = home.lake.storage, f"attempts/{SHARD}/part-0.parquet"
    content = bytearray(storage.read(table))
    content[len(content) // 2] ^= 1
    storage.write(table, bytes(content))
    [found] = damage(home)
    assert found.subject == ("attempts", SHARD) and "checksum is wrong" in found.problem
    assert found.file.endswith(table)

    home.lake.delete(ATTEMPTS, SHARD)
    home.images.storage.delete(home.images.relative_path(image.sha256))
    home.lake.write(ATTEMPTS, attempts(4, image=image.sha256, source_image=None), SHARD)
    [found] = damage(home)
    assert found.subject == (image.sha256,) and "is missing" in found.problem


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
