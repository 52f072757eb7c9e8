"""What nothing refers to is removed; all else stays."""

import os
import sqlite3
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas import StorageError
from schemas.trajectories import ATTEMPTS
from tests.warehouse.conftest import attempt
from tests.warehouse.test_compaction import SHARD, files, fill, packs, picture
from warehouse import Home
from warehouse.compaction import compact
from warehouse.garbage import collect_garbage
from warehouse.images import FRESH_SECONDS

WEEK = 7 * 86_400


def make_old(home: Home, seconds: float = 2 * WEEK) -> None:
    then = time.time() - seconds
    for path in (home.local / "images").rglob("*"):
        os.utime(path, (then, then))


def collect(home: Home, grace: float = WEEK, **options: bool) -> list[str]:
    return sorted(garbage.kind for garbage in collect_garbage(home, grace, **options))


def test_images_without_references_are_removed_after_the_grace_period(home):
    names = fill(home, 3)
    lost = home.images.put(picture(10))
    assert collect(home) == []
    make_old(home)
    new = home.images.put(picture(11))
    assert collect(home, dry_run=True) == ["image"] and home.images.exists(lost)
    assert collect(home) == ["image"] and not home.images.exists(lost)
    assert all(map(home.images.exists, [*names, new]))


def test_the_same_on_object_stores(memory_home):
    names = fill(memory_home, 2)
    lost = memory_home.images.put(picture(10))
    assert collect(memory_home, grace=-1) == ["image"]
    assert not memory_home.images.exists(lost) and all(map(memory_home.images.exists, names))


def write_text(home: Home, sha256: str) -> None:
    (home.local / "requests").mkdir()
    (home.local / "requests" / "a.jsonl").write_text(f'{{"images": ["{sha256}"]}}\n')


def write_journal(home: Home, sha256: str) -> None:
    with home.journal("benchmark_judgements", "a") as journal:
        journal.append({"answer": {"image": sha256}})
    home.journal("benchmark_judgements", "a").compress()


def write_sqlite(home: Home, sha256: str) -> None:
    (home.local / "service").mkdir()
    connection = sqlite3.connect(home.local / "service" / "library.sqlite")
    connection.execute("CREATE TABLE responses (id TEXT, events BLOB)")
    event = f'{{"image": "{sha256}"}}\n'
    connection.execute("INSERT INTO responses VALUES ('a', ?)", (b"x" * 9000 + event.encode(),))
    connection.commit()
    connection.close()


def write_export(home: Home, sha256: str) -> None:
    target = home.exports / "verl" / "images" / sha256[:2] / f"{sha256}.png"
    target.parent.mkdir(parents=True)
    os.link(home.images.url(sha256), target)


def write_requests_partition(home: Home, sha256: str) -> None:
    home.lake.write(ATTEMPTS, [attempt(0, image=sha256)], "_requests-2026")


def write_nested_column(home: Home, sha256: str) -> None:
    rows = [{"id": 1, "found": [{"text": f"see {sha256}", "number": 2}], "bytes": b"\x00"}]
    folder = home.local / "ablation" / "lake"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")


@pytest.mark.parametrize(
    "refer",
    [
        write_text,
        write_journal,
        write_sqlite,
        write_export,
        write_requests_partition,
        write_nested_column,
    ],
)
def test_whatever_refers_to_an_image_keeps_it(home, refer):
    name, lost = home.images.put(picture(1)), home.images.put(picture(2))
    refer(home, name)
    make_old(home)
    assert collect(home) == ["image"]
    assert home.images.exists(name) and not home.images.exists(lost)


def test_a_file_that_cannot_be_searched_stops_it(home):
    lost = home.images.put(picture(1))
    (home.local / "exports").mkdir()
    (home.local / "exports" / "rows.parquet").write_bytes(b"PAR1 damaged PAR1")
    make_old(home)
    with pytest.raises(StorageError, match=r"rows\.parquet cannot be searched") as error:
        collect(home)
    assert "\n" not in str(error.value) and home.images.exists(lost)


def test_an_old_image_that_is_stored_again_is_new(home):
    name = home.images.put(picture(1))
    make_old(home)
    home.images.put(picture(1))
    assert collect(home) == [] and home.images.exists(name)


def test_packs_are_rewritten_where_much_is_garbage(home):
    names = fill(home, 10)
    list(compact(home))
    before = packs(home)
    forget(home, names[:2])
    make_old(home)
    assert collect(home) == [] and packs(home) == before
    forget(home, names[:5])
    assert collect(home, dry_run=True) == ["packed image"] * 5 and packs(home) == before
    reader = Home(home.root)
    assert reader.images.get(names[6]) == picture(6)
    assert collect(home) == ["packed image"] * 5
    assert len(packs(home)) == 1 and packs(home) != before
    for store in (home.images, reader.images):
        assert [store.exists(name) for name in names] == [False] * 5 + [True] * 5
        assert [store.get(name) for name in names[5:]] == [picture(n) for n in range(5, 10)]
    forget(home, names)
    make_old(home)
    assert collect(home) == ["packed image"] * 5 and packs(home) == []


def test_a_packed_image_that_is_stored_again_is_not_lost_with_its_pack(home):
    names = fill(home, 4)
    list(compact(home))
    forget(home, names)
    make_old(home, FRESH_SECONDS + 60)
    home.images.put(picture(1))
    make_packs_old(home)
    collect(home)
    assert [home.images.exists(name) for name in names] == [False, True, False, False]


def test_a_file_beside_its_pack_is_removed(home):
    names = fill(home, 4)
    list(compact(home))
    home.images.storage.write(home.images.relative_path(names[0]), picture(0).data)
    make_old(home)
    assert collect(home) == ["copy"] and files(home) == []
    assert home.images.get(names[0]) == picture(0)


def test_what_killed_processes_left_is_removed(home):
    folder = home.local / "exports" / ".verl-0123456789ab.tmp"
    (folder / "images").mkdir(parents=True)
    (home.local / "images" / ".tmp").mkdir(parents=True)
    draft = home.local / "images" / ".tmp" / "17-0123456789ab"
    draft.write_bytes(b"half an image")
    assert collect(home) == []
    then = time.time() - 2 * WEEK
    for path in (folder, draft):
        os.utime(path, (then, then))
    assert collect(home) == ["draft"] * 2 and not folder.exists() and not draft.exists()


def forget(home: Home, names: list[str]) -> None:
    """Remove those images from everything that refers to them."""
    rows = [
        row for row in home.lake.read(ATTEMPTS, [SHARD]).to_pylist() if row["image"] not in names
    ]
    home.lake.write(ATTEMPTS, [ATTEMPTS.row.model_validate(row) for row in rows], SHARD)
    for asset in ("plans", "trajectories"):
        home.journal(asset, SHARD).remove()


def make_packs_old(home: Home) -> None:
    then = time.time() - 2 * WEEK
    for name in packs(home):
        os.utime(Path(home.images.packs.packs.url(name)), (then, then))
