"""What nothing refers to is removed; all else stays."""

import os
import sqlite3
import time
from contextlib import closing

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


def make_old(home: Home, seconds: float = 2 * WEEK, below: str = "images") -> None:
    then = time.time() - seconds
    for path in (home.local / below).rglob("*"):
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


def test_whatever_refers_to_an_image_keeps_it(home):
    names = [home.images.put(picture(number)) for number in range(7)]
    in_text, in_journal, in_sqlite, in_export, in_requests, in_column, lost = names
    folders = [home.local / name for name in ("requests", "service", "ablation/lake")]
    for folder in folders:
        folder.mkdir(parents=True)
    requests, service, ablation = folders
    (requests / "a.jsonl").write_text(f'{{"images": ["{in_text}"]}}\n')
    with home.journal("benchmark_judgements", "a") as journal:
        journal.append({"answer": {"image": in_journal}})
    home.journal("benchmark_judgements", "a").compress()
    with closing(sqlite3.connect(service / "library.sqlite")) as connection, connection:
        event = b"x" * 9000 + f'{{"image": "{in_sqlite}"}}\n'.encode()
        connection.execute("CREATE TABLE responses (id TEXT, events BLOB)")
        connection.execute("INSERT INTO responses VALUES ('a', ?)", (event,))
    export = home.exports / "verl" / "images" / in_export[:2] / f"{in_export}.png"
    export.parent.mkdir(parents=True)
    os.link(home.images.url(in_export), export)
    home.lake.write(ATTEMPTS, [attempt(0, image=in_requests)], "_requests-2026")
    rows = [{"id": 1, "found": [{"text": f"see {in_column}", "number": 2}], "bytes": b"\x00"}]
    pq.write_table(pa.Table.from_pylist(rows), ablation / "a.parquet")
    make_old(home)
    assert collect(home) == ["image"]
    assert [name for name in names if not home.images.exists(name)] == [lost]


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
    make_old(home, below="images/packs")
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
