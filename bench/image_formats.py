"""Parquet, Lance and tar as packs of images: size, random and sequential reads, other readers.

The numbers of `docs/compaction.md`. Lance is no dependency of the project, so this runs in a
virtual environment of its own, from the root of the repository:

    pip install pylance pyarrow duckdb datasets pillow numpy
    python -m bench.image_formats 10000 3000       # number of images, bytes of each (about)
"""

import hashlib
import io
import json
import mmap
import os
import random
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import load_dataset
from PIL import Image

_READS = 500
_GROUP_BYTES = 8 * 2**20
_SCHEMA = pa.schema(
    [("sha256", pa.string()), ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())]))]
)

Packed = list[tuple[str, bytes]]
Reader = Callable[[str], bytes]


def images(count: int, size: int) -> Packed:
    """Distinct PNGs, sorted by hash: noise in a corner of a white square, a number at the end."""
    side = max(8, int((size / 3) ** 0.5))
    generator, patterns = np.random.default_rng(0), []
    for _ in range(16):
        buffer = io.BytesIO()
        noise = generator.integers(0, 255, (side, side, 3), dtype=np.uint8)
        Image.fromarray(noise).save(buffer, "PNG", compress_level=1)
        patterns.append(buffer.getvalue())
    made = (patterns[n % 16] + n.to_bytes(8, "big") for n in range(count))
    return sorted((hashlib.sha256(data).hexdigest(), data) for data in made)


def batches(packed: Packed) -> Iterator[Packed]:
    batch: Packed = []
    for item in packed:
        batch.append(item)
        if len(item[1]) * len(batch) >= _GROUP_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def to_arrow(batch: Packed) -> pa.Table:
    rows = [{"sha256": sha, "image": {"bytes": data, "path": None}} for sha, data in batch]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def write_parquet(packed: Packed, path: Path) -> None:
    """Uncompressed and plain, so that every image is one range of bytes; the footer has them."""
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    with pq.ParquetWriter(path, _SCHEMA, **options) as writer:
        places, end = {}, 0
        for batch in batches(packed):
            writer.write_table(to_arrow(batch))
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
                for sha, data in batch:
                    start = view.find(data, end)
                    end = start + len(data)
                    places[sha] = (start, len(data))
        writer.add_key_value_metadata({"index": json.dumps(places)})


def parquet_statistics(path: Path) -> Reader:
    """By the statistics of row groups: what any reader of Parquet can do."""
    file = pq.ParquetFile(path)
    groups = [file.metadata.row_group(n).column(0) for n in range(file.num_row_groups)]
    ends = [group.statistics.max for group in groups]

    def read(sha: str) -> bytes:
        group = next(n for n, end in enumerate(ends) if sha <= end)
        rows = file.read_row_group(group)
        row = rows["sha256"].index(sha).as_py()
        return rows["image"][row].as_py()["bytes"]

    return read


def parquet_ranges(path: Path) -> Reader:
    """By the ranges of bytes in the footer."""
    places = json.loads(pq.read_metadata(path).metadata[b"index"])
    descriptor = os.open(path, os.O_RDONLY)
    return lambda sha: os.pread(descriptor, places[sha][1], places[sha][0])


def write_lance(packed: Packed, path: Path) -> None:
    import lance

    schema = pa.schema([("sha256", pa.string()), ("image", pa.binary())])
    parts = (
        pa.record_batch([[s for s, _ in batch], [d for _, d in batch]], schema=schema)
        for batch in batches(packed)
    )
    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, parts), str(path))
    lance.dataset(str(path)).create_scalar_index("sha256", "BTREE")


def lance_reader(path: Path) -> Reader:
    import lance

    dataset = lance.dataset(str(path))
    return lambda sha: dataset.to_table(filter=f"sha256 = '{sha}'")["image"][0].as_py()


def write_tar(packed: Packed, path: Path) -> None:
    places = {}
    with tarfile.open(path, "w") as archive:
        for sha, data in packed:
            member = tarfile.TarInfo(f"{sha}.png")
            member.size = len(data)
            places[sha] = (archive.offset + 512, len(data))
            archive.addfile(member, io.BytesIO(data))
    path.with_suffix(".json").write_text(json.dumps(places))


def tar_reader(path: Path) -> Reader:
    places = json.loads(path.with_suffix(".json").read_text())
    descriptor = os.open(path, os.O_RDONLY)
    return lambda sha: os.pread(descriptor, places[sha][1], places[sha][0])


def write_files(packed: Packed, path: Path) -> None:
    for sha, data in packed:
        folder = path / sha[:2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{sha}.png").write_bytes(data)


def files_reader(path: Path) -> Reader:
    return lambda sha: (path / sha[:2] / f"{sha}.png").read_bytes()


def scan_parquet(path: Path) -> int:
    batches = pq.ParquetFile(path).iter_batches(batch_size=64)
    return sum(len(v.as_py()["bytes"]) for batch in batches for v in batch["image"])


def scan_lance(path: Path) -> int:
    import lance

    batches = lance.dataset(str(path)).to_batches(batch_size=64)
    return sum(len(v.as_py()) for batch in batches for v in batch["image"])


def scan_tar(path: Path) -> int:
    with tarfile.open(path) as archive:
        return sum(len(archive.extractfile(member).read()) for member in archive)


def scan_files(path: Path) -> int:
    return sum(len(file.read_bytes()) for file in path.rglob("*.png"))


def with_datasets(builder: str, path: Path) -> Callable[[], object]:
    """The first thousand rows, streamed."""

    def read() -> int:
        options = {"data_files": str(path)} if builder != "lance" else {"data_dir": str(path)}
        rows = load_dataset(builder, split="train", streaming=True, **options)
        return sum(1 for _ in rows.take(1000))

    return read


def with_duckdb(sql: str, sha: str, **tables: Callable[[], object]) -> Callable[[], object]:
    def read() -> object:
        with duckdb.connect() as connection:
            for name, dataset in tables.items():
                connection.register(name, dataset())
            return connection.execute(sql, [sha]).fetchone()[0]

    return read


def timed(work: Callable[[], object]) -> str:
    started = time.perf_counter()
    try:
        work()
    except Exception as error:
        return f"no ({type(error).__name__}: {str(error).splitlines()[0][:60]})"
    return f"{time.perf_counter() - started:.4f}"


def best(work: Callable[[], object]) -> str:
    return min(timed(work) for _ in range(3))


def size_of(path: Path) -> int:
    files = [*path.rglob("*"), path, path.with_suffix(".json")]
    return sum(file.stat().st_size for file in files if file.is_file())


def measure(
    name: str,
    path: Path,
    packed: Packed,
    write: object,
    open_: object,
    scan: object,
    datasets: object = None,
    sql: object = None,
) -> None:
    content = sum(len(data) for _, data in packed)
    result = {"write s": timed(lambda: write(packed, path))}
    result["size / content"] = f"{size_of(path) / content:.3f}"
    result["open s"] = timed(lambda: open_(path))
    chosen = random.Random(0).sample(packed, min(_READS, len(packed)))
    read = open_(path)

    def random_reads() -> None:
        for sha, data in chosen:
            assert read(sha) == data

    result["random read us"] = f"{float(best(random_reads)) / len(chosen) * 1e6:.0f}"
    result["sequential MB/s"] = f"{content / 1e6 / float(best(lambda: scan(path))):.0f}"
    result["datasets, 1000 rows, s"] = best(datasets) if datasets else "no"
    result["DuckDB by hash, s"] = best(sql) if sql else "no"
    print(json.dumps({"format": name, **result}), flush=True)


def main() -> None:
    count, size = map(int, sys.argv[1:])
    packed = images(count, size)
    print(f"{count} images, {sum(len(d) for _, d in packed) / count:.0f} bytes each", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="image-formats-"))
    sha = packed[count // 2][0]
    try:
        measure("files", folder / "files", packed, write_files, files_reader, scan_files)
        path = folder / "pack.parquet"
        sql = f"SELECT image.bytes FROM read_parquet('{path}') WHERE sha256 = ?"
        rest = (scan_parquet, with_datasets("parquet", path), with_duckdb(sql, sha))
        write_parquet(packed[:1000], path)
        for warm_up in rest[1:]:
            timed(warm_up)
        measure("parquet, statistics", path, packed, write_parquet, parquet_statistics, *rest)
        measure("parquet, ranges", path, packed, write_parquet, parquet_ranges, *rest)
        path = folder / "pack.lance"
        sql = "SELECT image FROM pack WHERE sha256 = ?"
        dataset = lambda: __import__("lance").dataset(str(path))  # noqa: E731
        rest = (scan_lance, with_datasets("lance", path), with_duckdb(sql, sha, pack=dataset))
        measure("lance", path, packed, write_lance, lance_reader, *rest)
        path = folder / "pack.tar"
        rest = (scan_tar, with_datasets("webdataset", path))
        measure("tar", path, packed, write_tar, tar_reader, *rest)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
