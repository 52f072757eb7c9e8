"""`interleave verify`: damage of everything that a home stores, and its repair.

A repair makes no paid call: models are asked without keys, and only where the journals lack an
answer. A file that cannot be made again stays where it is; one that can is moved to
`quarantine/<time>/` first.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path

import dagster as dg
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assets.checkpoints.training import TrainingRecord, checkpoint_row
from assets.core.foundry import FoundryResource
from assets.core.node import NODES, Node, lineage
from assets.curation.exports.publisher import export_checks
from inference.backends.checkpoint.manifest import RECORD
from inference.review_log import restore_reviews
from schemas import TABLES, BadImageError, FoundryError, Table
from schemas.training import CHECKPOINTS
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, REVIEWS
from training.registry import CheckpointRegistry, checkpoint_checks
from warehouse import EncodedImage, Home, Journal
from warehouse.atomic import atomic_write
from warehouse.journal import COMPRESSED, LINES, compress, decompress
from warehouse.lake import REQUESTS
from warehouse.storage import storage_errors
from warehouse.verify import (
    Check,
    Damage,
    Kind,
    damaged_lines,
    database_checks,
    image_checks,
    journal_checks,
    table_checks,
)

from .run import materialize_again

# Groups whose assets follow from journals and other tables.
_DERIVED = ("prompts", "trajectories", "reviews", "imports", "data_sets")
# Journals of what people decided: without a line of theirs, other things would be in use.
_DECISIONS = ("reviews", "promotions")


def all_checks(home: Home) -> list[Check]:
    """A check for every stored file, in the order of a repair."""
    parts = (journal_checks, image_checks, table_checks)
    more = (export_checks, checkpoint_checks, database_checks)
    return [check for checks in (*parts, *more) for check in checks(home)]


@dataclass
class Repair:
    """Repairs what can be made again without a paid call.

    Args:
        announce: gets a line for everything that is done.
    """

    foundry: FoundryResource
    instance: dg.DagsterInstance
    announce: Callable[[str], object]
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.home = self.foundry.home
        self.folder = self.home.local / "quarantine" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"

    def run(self, damage: Sequence[Damage]) -> None:
        """Repair what is damaged; `verify` afterwards says what was not."""
        self._repair_journals(_subjects(damage, "journal"))
        images = _subjects(damage, "image")
        self._repair_images(set(images))
        self._repair_tables({each.subject for each in damage if each.kind == "table"})
        # To draw them, or to find out what drew them, took tables that are there only now.
        self._repair_images({name for name in images if not self._has_image(name)})
        self._repair_exports(_subjects(damage, "export"))

    def _repair_journals(self, files: set[str]) -> None:
        """Take damaged lines out; what they said is made again when it is needed."""
        for file in sorted(files):
            if Path(file).parent.name in _DECISIONS or Path(file).parent.parent.name in _DECISIONS:
                continue
            if self.home.storage.is_local or Path(file).is_absolute():
                path, journal = Path(file), file.removesuffix(COMPRESSED.removeprefix(LINES))
                with Journal(Path(journal)):  # nobody else writes it meanwhile
                    data = path.read_bytes()
                    self._quarantine(file, data)
                    atomic_write(path, _without_damaged_lines(data, file), durable=True)
            else:
                name = self._relative(file)
                data = self.home.storage.read(name)
                self._quarantine(file, data)
                self.home.storage.write(name, _without_damaged_lines(data, file))
            self.announce(f"{file}: damaged lines are taken out")

    def _repair_images(self, names: set[str]) -> None:
        """From a copy in an export, else drawn again where that costs nothing."""
        for image in _exported_images(self.home, names):
            self._store(image)
            names.discard(image.sha256)
        if not names:
            return
        rows = _attempts_with(self.home, names)
        for shard in sorted({row["shard"] for row in rows}):
            drawn = {row["image"] for row in rows if row["shard"] == shard}
            if _cost(self.home, f"trajectories-{shard}", "generator") or not drawn:
                continue
            self._make_again(NODES["trajectories"], shard)

    def _has_image(self, name: str) -> bool:
        with suppress(BadImageError):
            return bool(self.home.images.get(name))
        return False

    def _store(self, image: EncodedImage) -> None:
        url = self.home.images.url(image.sha256)
        with suppress(FileNotFoundError):
            path = f"images/{self.home.images.relative_path(image.sha256)}"
            self._quarantine(url, self.home.storage.read(path))
        self.home.images.put(image)
        self.announce(f"{url}: copied from an export")

    def _repair_tables(self, subjects: Iterable[tuple[str, ...]]) -> None:
        """All are moved away first, because assets also read what is made after them."""
        damaged = sorted(
            ((TABLES[name], partition) for name, partition in subjects),
            key=lambda each: (each[0].name, each[1]),
        )
        files = [(table, name, self.home.lake.file(table, name)) for table, name in damaged]
        moved = {file: self._move_away(file) for _, _, file in files}
        for table, name, file in files:
            if make := self._maker(table, name):
                self._announced(file, make)
        for node in lineage():
            for partition in _owned(node, damaged) if node.group in _DERIVED else ():
                self._make_again(node, partition)
        for _, _, file in files:
            data, path = moved[file], self._relative(file)
            if data is not None and not self.home.storage.exists(path):
                self.home.storage.write(path, data)  # its damage is named by all who read it

    def _maker(self, table: Table, partition: str) -> Callable[[], object] | None:
        """What writes a partition that no asset of the data does."""
        if table is CHECKPOINTS:
            return partial(self._register, partition)
        if table is REVIEWS:
            return partial(restore_reviews, self.home)
        if partition == "_schema":
            return partial(self.home.lake.write_schema_file, table)
        return None

    def _register(self, partition: str) -> None:
        for path in self.home.local.absolute().glob(f"checkpoints/*/*/{RECORD}"):
            name, version = path.parent.parent.name, path.parent.name
            if f"{name}-{version}" == partition:
                record = TrainingRecord.model_validate_json(path.read_bytes())
                row = checkpoint_row(name, version, path.parent, record)
                CheckpointRegistry(self.home).register(row)
                return
        raise FoundryError("its checkpoint's folder is gone, too")

    def _make_again(self, node: Node, partition: str | None = None) -> bool:
        """Materialize a node without paid calls; returns whether that succeeded."""
        foundry = self.foundry.without_keys()
        make = partial(materialize_again, foundry, self.instance, node, partition)
        return self._announced(node.label(partition), make)

    def _announced(self, what: str, make: Callable[[], object]) -> bool:
        try:
            make()
        except FoundryError as error:
            self.announce(f"{what} is not made again: {error}")
            return False
        self.announce(f"{what} is made again")
        return True

    def _repair_exports(self, names: set[str]) -> None:
        moved = {self.home.exports / name: self.folder / "exports" / name for name in sorted(names)}
        for source, target in moved.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            with storage_errors("moved", source):
                shutil.move(source, target)
        if moved and not self._make_again(NODES["exports"]):
            for source, target in moved.items():
                if not source.exists():
                    shutil.move(target, source)

    def _move_away(self, url: str) -> bytes | None:
        """Move a table's file to the quarantine; its bytes, or None where it is gone."""
        path = self._relative(url)
        with suppress(FileNotFoundError):
            data = self.home.storage.read(path)
            self._quarantine(url, data)
            self.home.storage.delete(path)
            return data
        return None

    def _quarantine(self, url: str, data: bytes) -> None:
        target = self.folder / self._relative(url).lstrip("/")
        with storage_errors("written", target):
            atomic_write(target, data)

    def _relative(self, url: str) -> str:
        """Path below the home's root, or its local folder."""
        return url.removeprefix(f"{self.home.storage.url()}/").removeprefix(f"{self.home.local}/")


def paid_for(home: Home, damage: Sequence[Damage]) -> dict[str, float]:
    """USD that the calls behind damaged images, and tables of shards, cost, by file."""
    costs = {
        each.file: _cost(home, "-".join(each.subject))
        for each in damage
        if each.kind == "table" and each.subject[0] in ("plans", "trajectories", "scores")
    }
    images = {s: each.file for each in damage if each.kind == "image" for s in each.subject}
    for row in _attempts_with(home, set(images)) if images else ():
        cost = _cost(home, f"trajectories-{row['shard']}", "generator", row)
        costs[images[row["image"]]] = cost
    return costs


def _subjects(damage: Sequence[Damage], kind: Kind) -> set[str]:
    return {subject for each in damage if each.kind == kind for subject in each.subject}


def _without_damaged_lines(data: bytes, file: str) -> bytes:
    """The content of a journal's file, compressed if that is."""
    is_compressed = file.endswith(COMPRESSED)
    lines = decompress(data) if is_compressed else data
    damaged = {number for number, _ in damaged_lines(lines, file)}
    numbered = enumerate(lines.split(b"\n")[:-1], 1)
    intact = b"".join(line + b"\n" for number, line in numbered if number not in damaged)
    return compress(intact) if is_compressed else intact


def _owned(node: Node, damaged: Iterable[tuple[Table, str]]) -> set[str | None]:
    """The partitions of a node that wrote damaged files; None: it has no partitions."""
    names: set[str | None] = set()
    for table, name in damaged:
        if name.startswith((REQUESTS, "_")):
            continue
        if table in node.ledger and name.startswith(f"{node.name}-"):
            names.add(name.removeprefix(f"{node.name}-") if node.is_partitioned else None)
        elif table in node.tables:
            names.add(name if node.is_partitioned else None)
    return names


def _attempts_with(home: Home, names: set[str]) -> list[dict[str, str]]:
    """Attempts that drew some images; none where the table is damaged."""
    rows: list[dict[str, str]] = []
    columns = ["shard", "prompt_id", "step_number", "iteration", "image"]
    for partition in home.lake.partitions(ATTEMPTS):
        with suppress(FoundryError):
            where = pc.field("image").isin(pa.array(sorted(names)))
            rows += home.lake.read(ATTEMPTS, [partition], columns, where).to_pylist()
    return rows


def _cost(
    home: Home, partition: str, role: str | None = None, call: dict[str, str] | None = None
) -> float:
    """USD of the calls in a partition of `model_calls`: of a role, of an attempt."""
    columns = ["role", "prompt_id", "step_number", "iteration", "cost_usd"]
    with suppress(FoundryError):
        rows = home.lake.read(MODEL_CALLS, [partition], columns).to_pylist()
        keys = ("prompt_id", "step_number", "iteration") if call else ()
        return sum(
            row["cost_usd"] or 0.0
            for row in rows
            if role in (None, row["role"]) and all(row[key] == call[key] for key in keys if call)
        )
    return 0.0


def _exported_images(home: Home, names: set[str]) -> Iterator[EncodedImage]:
    """Intact copies of images in exports: files, and bytes in Parquet."""
    found: set[str] = set()
    files = (home.exports.glob(f"*/images/{name[:2]}/{name}.png") for name in sorted(names))
    copies = chain.from_iterable(files)
    embedded = (
        image["bytes"]
        for file in sorted(home.exports.glob("huggingface/data/*/*.parquet"))
        for image in _embedded(file, names - found)
    )
    for data in chain(map(Path.read_bytes, copies), embedded):
        image = EncodedImage(data)
        if image.sha256 in names - found:
            found.add(image.sha256)
            yield image


def _embedded(file: Path, names: set[str]) -> Iterator[dict[str, bytes]]:
    wanted = {f"{name}.png" for name in names}
    with suppress(OSError, pa.ArrowException):
        reader = pq.ParquetFile(file)
        if wanted and "images" in reader.schema_arrow.names:
            for batch in reader.iter_batches(64, columns=["images"]):
                for images in batch.column(0).to_pylist():
                    yield from (image for image in images or () if image["path"] in wanted)


def as_json(damage: Sequence[Damage], repaired: Sequence[Damage]) -> bytes:
    """The findings as JSON: those that remain, and those that were repaired."""

    def fields(each: Damage) -> dict[str, str]:
        names = ("kind", "file", "problem", "remedy")
        return {name: getattr(each, name) for name in names}

    content = {"damage": list(map(fields, damage)), "repaired": list(map(fields, repaired))}
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
