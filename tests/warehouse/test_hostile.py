"""Full disks and read-only folders: a one-line error, and no data lost."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from schemas import StorageError
from schemas.trajectories import ATTEMPTS
from warehouse import EncodedImage, Home
from warehouse.sql import query
from warehouse.views import refresh_views

SHARD = "sketchbook-0000"


def noise(size: int) -> EncodedImage:
    """An image that does not compress."""
    pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    return EncodedImage.of(Image.fromarray(pixels))


def files(home: Home) -> set[str]:
    return {str(path.relative_to(home.local)) for path in home.local.rglob("*") if path.is_file()}


def fill(folder: Path) -> None:
    """Leave no free block in the folder's file system."""
    with pytest.raises(OSError, match="No space left"), (folder / "ballast").open("wb") as ballast:
        while True:
            ballast.write(b"x" * 4096)
            ballast.flush()


def test_a_full_disk_leaves_the_old_partition(mounted, attempts):
    home = Home(mounted("size=1m"))
    home.lake.write(ATTEMPTS, attempts(8), SHARD)
    before = files(home)
    text = np.random.default_rng(0).bytes(3_000_000).hex()
    with pytest.raises(StorageError, match=r"part-0\.parquet cannot be written: no space") as error:
        home.lake.write(ATTEMPTS, attempts(1, reasoning=text), SHARD)
    assert "\n" not in str(error.value)
    assert home.lake.rows(ATTEMPTS, SHARD) == 8
    assert files(home) == before
    home.lake.write(ATTEMPTS, attempts(9), SHARD)
    assert home.lake.rows(ATTEMPTS, SHARD) == 9


def test_a_full_disk_stores_no_part_of_an_image(mounted, image):
    home = Home(mounted("size=1m"))
    home.images.put(image)
    before = files(home)
    with pytest.raises(StorageError, match="no space left"):
        home.images.put(noise(1024))
    assert files(home) == before


def test_a_full_disk_leaves_no_part_of_a_line(mounted):
    home = Home(mounted("size=1m"))
    journal = home.journal("trajectories", SHARD)
    journal.append({"number": 0})
    fill(home.local)
    with pytest.raises(StorageError, match=r"jsonl cannot be written: no space left") as error:
        for number in range(1, 10):
            journal.append({"number": number, "text": "x" * 3000})
    assert "\n" not in str(error.value)
    assert journal.path.read_bytes().endswith(b"}\n")
    size = [record["number"] for record in journal.records()]
    (home.local / "ballast").unlink()
    journal.append({"number": -1})
    assert [record["number"] for record in journal.records()] == [*size, -1]


def test_a_read_only_home_is_readable(mounted, attempts, image):
    home = Home(mounted("size=4m"))
    home.lake.write(ATTEMPTS, attempts(8), SHARD)
    sha = home.images.put(image)
    refresh_views(home)
    with home.journal("plans", SHARD) as journal:
        journal.append({"number": 0})
    subprocess.run(["mount", "-o", "remount,ro", str(home.local)], check=True)

    home = Home(home.root)
    assert query("SELECT count(*) AS n FROM attempts", home)["n"].tolist() == [8]
    assert home.lake.read(ATTEMPTS).num_rows == 8
    assert home.images.get(sha) == image
    assert list(home.journal("plans", SHARD).records()) == [{"number": 0}]
    for action in (
        lambda: home.lake.write(ATTEMPTS, attempts(9), SHARD),
        lambda: home.lake.delete(ATTEMPTS, SHARD),
        lambda: home.images.put(noise(8)),
        lambda: home.journal("plans", SHARD).append({"number": 1}),
        lambda: refresh_views(home),
    ):
        with pytest.raises(StorageError, match="the file system is read-only; point") as error:
            action()
        assert "\n" not in str(error.value)
    assert home.lake.rows(ATTEMPTS, SHARD) == 8
