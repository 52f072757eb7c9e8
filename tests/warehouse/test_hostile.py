"""Full disks, read-only folders and throttled stores: no data lost."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from schemas import StorageError
from schemas.trajectories import ATTEMPTS
from tests.helpers.throttling_proxy import Throttle, throttling_proxy
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


@pytest.fixture
def throttled(s3_server, s3_home, monkeypatch):
    """A home behind the proxy, and the proxy's counts."""
    import s3fs

    throttle = Throttle(0.3)
    with throttling_proxy(s3_server, throttle) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        s3fs.S3FileSystem.clear_instance_cache()
        yield Home(s3_home.root), throttle
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.slow
def test_a_throttled_store_loses_nothing(throttled, s3_home, attempts, image):
    home, throttle = throttled
    written = home.lake.write(ATTEMPTS, attempts(4), "sketchbook-0000")
    sha256 = home.images.put(image)
    with home.journal("plans", "sketchbook-0000") as journal, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: journal.append({"number": number}), range(16)))
    with home.journal("plans", "sketchbook-0000") as journal:
        journal.append({"number": 16})
    assert throttle.throttled > 10 and throttle.answered > throttle.throttled
    for each in (home, s3_home):
        assert each.lake.content_hash(ATTEMPTS, "sketchbook-0000") == written.content_hash
        assert each.images.get(sha256) == image
        records = each.journal("plans", "sketchbook-0000").records()
        assert sorted(record["number"] for record in records) == [*range(17)]
