"""Packs of images: what readers and writers see before, during and after; real kills."""

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from PIL import Image

from schemas import BadImageError, StorageError
from schemas.trajectories import ATTEMPTS, SCORES
from tests.warehouse.conftest import attempt
from warehouse import EncodedImage, Home
from warehouse.compaction import compact
from warehouse.image_pack import PackIndex, damaged_images

SHARD = "sketchbook-0000"


def picture(number: int) -> EncodedImage:
    return EncodedImage.of(Image.new("RGB", (24, 24), (number % 256, number // 256, 7)))


def fill(home: Home, count: int, shard: str = SHARD, first: int = 0) -> list[str]:
    """A finished shard with `count` images, and their hashes."""
    names = [home.images.put(picture(first + n)) for n in range(count)]
    rows = [attempt(n, shard=shard, image=name, source_image=None) for n, name in enumerate(names)]
    home.lake.write(ATTEMPTS, rows, shard)
    home.lake.write(SCORES, [], shard)
    for asset in ("plans", "trajectories"):
        with home.journal(asset, shard) as journal:
            for name in names:
                call = {"role": "generator"}
                journal.append({"call": call, "answer": {"image": name}})
    return names


def files(home: Home) -> list[str]:
    return [path for path, _ in home.images.files()]


def packs(home: Home) -> list[str]:
    return home.images.packs.packs.names(".parquet")


def test_images_and_journals_of_a_finished_shard_are_packed(any_home):
    """A home that was open before finds them; its journals go on."""
    names = fill(any_home, 5)
    reader, before = Home(any_home.root), list(any_home.journal("plans", SHARD).records())
    assert reader.images.exists(names[0])
    (planned,) = compact(any_home, dry_run=True)
    assert len(files(any_home)) == 5 and not packs(any_home)
    (done,) = compact(any_home)
    assert done == planned and (done.images, done.journals) == (5, 2)
    assert not files(any_home) and len(packs(any_home)) == 1
    for home in (reader, Home(any_home.root)):
        assert [home.images.get(name) for name in names] == [picture(n) for n in range(5)]
        assert all(map(home.images.exists, names)) and not home.images.exists("0" * 64)
        assert list(home.journal("plans", SHARD).records()) == before
        assert home.journals("plans") == [SHARD]
    with pytest.raises(BadImageError, match="is missing"):
        reader.images.get("0" * 64)
    assert list(compact(any_home)) == []
    more = {"call": {"role": "critic"}, "answer": {}}
    with any_home.journal("plans", SHARD) as journal:
        journal.append(more)
    list(compact(any_home))
    assert list(any_home.journal("plans", SHARD).records()) == [*before, more]
    any_home.journal("plans", SHARD).remove()
    assert list(any_home.journal("plans", SHARD).records()) == []


def test_an_image_of_several_shards_is_in_one_pack(home):
    fill(home, 4)
    fill(home, 6, "sketchbook-0001")
    assert [done.images for done in compact(home)] == [4, 2]
    assert home.images.get(picture(0).sha256) == picture(0)


def test_shards_that_are_written_or_unfinished_are_left_alone(home):
    fill(home, 2)
    fill(home, 2, "sketchbook-0001", first=2)
    home.lake.delete(SCORES, "sketchbook-0001")
    with home.journal("scores", SHARD):
        assert list(compact(home)) == []
    assert len(files(home)) == 4


def test_a_pack_is_read_by_datasets_duckdb_and_pyarrow(home, tmp_path):
    names = fill(home, 5)
    list(compact(home))
    file = home.images.packs.packs.url(packs(home)[0])
    datasets = pytest.importorskip("datasets")
    rows = datasets.load_dataset(
        "parquet", data_files=file, split="train", cache_dir=str(tmp_path / "cache")
    )
    assert rows[0]["image"].size == (24, 24) and rows["sha256"] == sorted(names)
    sql = f"SELECT image.bytes FROM '{file}' WHERE sha256 = ?"
    assert duckdb.execute(sql, [names[3]]).fetchone() == (picture(3).data,)
    table = pq.read_table(file, page_checksum_verification=True)
    assert table["sha256"].to_pylist() == sorted(names)


def test_a_damaged_packed_image_is_named_and_replaced(home):
    names = fill(home, 5)
    list(compact(home))
    (pack,) = packs(home)
    file = Path(home.images.packs.packs.url(pack))
    data = picture(2).data
    file.write_bytes(file.read_bytes().replace(data, data[:40] + b"?" + data[41:]))
    assert damaged_images(home.images.packs.packs, pack) == [names[2]]
    with pytest.raises(BadImageError, match=rf"is damaged .* in .*{pack}.*--force"):
        home.images.get(names[2])
    home.images.put(picture(2))
    assert home.images.get(names[2]) == picture(2)
    home.images.put(picture(1))
    assert len(files(home)) == 1


def test_a_damaged_index_is_made_again_and_a_damaged_footer_is_one_line(home):
    names = fill(home, 5)
    list(compact(home))
    home.images.index_file.write_bytes(b"not SQLite" * 1000)
    assert Home(home.root).images.get(names[0]) == picture(0)
    file = Path(home.images.packs.packs.url(packs(home)[0]))
    content = bytearray(file.read_bytes())
    content[content.rindex(b"interleave.ranges") + 80] ^= 1
    file.write_bytes(content)
    home.images.index_file.unlink()
    with pytest.raises(StorageError, match=r"footer of .*parquet is damaged") as error:
        Home(home.root).images.get(names[0])
    assert "\n" not in str(error.value)


def test_a_second_compaction_is_refused(home):
    fill(home, 2)
    fill(home, 2, "sketchbook-0001", first=2)
    running = compact(home)
    next(running)
    with pytest.raises(StorageError, match="another process compacts"):
        next(compact(home))
    running.close()


KILLS = """
import os, shutil, signal, sys
import fsspec.implementations.local, pandas, pyarrow.dataset  # once, not in every child
from warehouse import Home
from warehouse.compaction import compact

prepared, folder = sys.argv[1:]
CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.truncate"}

def kill_before(number):
    # A real SIGKILL before the n-th time that a file of the home is made, renamed or removed.
    remaining = [number]
    def hook(event, arguments):
        reads = event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if event in CHANGES and folder in str(arguments[0]) and not reads:
            remaining[0] -= 1
            if remaining[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

number = 0
while True:
    home = f"{folder}/{number}"
    shutil.copytree(prepared, home)
    if (child := os.fork()) == 0:
        kill_before(number)
        list(compact(Home(home)))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        sys.exit(status)
    print(home, flush=True)
    number += 1
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_nothing(tmp_path):
    prepared, shards = Home(tmp_path / "prepared"), ("sketchbook-0000", "sketchbook-0001")
    names = {shard: fill(prepared, 4, shard, 4 * n) for n, shard in enumerate(shards)}
    (tmp_path / "kills").mkdir()
    call = [sys.executable, "-c", KILLS, prepared.root, str(tmp_path / "kills")]
    done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True)
    killed = list(map(Home, done.stdout.split()))
    assert len(killed) > 30
    assert len({len(files(home)) for home in killed}) > 6  # in the middle of deletions, too
    for home in killed:
        assert_complete(home, names)
        list(compact(home))
        assert not files(home) and not home.images.packs.packs.names(".pending")
        assert_complete(home, names)


def assert_complete(home: Home, names: dict[str, list[str]]) -> None:
    for shard, images in names.items():
        assert all(home.images.get(name).sha256 == name for name in images)
        for asset in ("plans", "trajectories"):
            answers = [record["answer"]["image"] for record in home.journal(asset, shard).records()]
            assert list(dict.fromkeys(answers)) == images


READ = """
import sys, random
from warehouse import Home

images = Home(sys.argv[1]).images
names = sys.argv[2].split(",")
while True:
    name = random.choice(names)
    assert images.get(name).sha256 == name and images.exists(name)
    images.put(images.get(name))
    print(flush=True)
"""


def test_readers_and_writers_at_the_same_time_find_every_image(tmp_path):
    home = Home(tmp_path / "home")
    names = fill(home, 300)
    call = [sys.executable, "-c", READ, home.root, ",".join(names)]
    readers = [subprocess.Popen(call, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for reader in readers:
            reader.stdout.readline()
        for _ in range(5):
            list(compact(home))
            for name in names[::3]:  # as a run would that does not know of the pack yet
                home.images.storage.write(
                    home.images.relative_path(name), home.images.get(name).data
                )
            os.utime(home.images.packs.packs.root)
        assert all(reader.poll() is None for reader in readers)
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()


def test_the_index_learns_of_packs_that_came_and_went(home):
    names = fill(home, 4)
    list(compact(home))
    store = home.images.packs.packs
    index = PackIndex(store, home.local / "other.sqlite")
    assert [len(index.find(name)) for name in names] == [1] * 4
    Path(store.url(packs(home)[0])).rename(store.url("renamed.parquet"))
    assert {place.pack for name in names for place in index.find(name)} == {"renamed.parquet"}
