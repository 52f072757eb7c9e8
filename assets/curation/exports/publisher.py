"""Writes the exports of a home, each with a card, skips unchanged ones, and finds damaged ones.

A card says what an export contains and where it comes from, for people (Markdown) and tools (JSON).
Damage of files is found by the hashes of `SHA256SUMS`, of images by their names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from inference.calls.hashing import content_digest
from schemas import FoundryError, Table
from warehouse import Home
from warehouse.atomic import atomic_path
from warehouse.storage import first_line
from warehouse.verify import SUMS_FILE, Check, Damage, file_sha256, folder_checks, write_sums

from ...core.duckdb_session import duckdb_session
from ...core.metadata import markdown_section
from ..settings import CurationSettings
from ..sources import TrainingSources
from ..steps import theta_of
from .folder import CARD, ExportFolder, read_card, simulation_note
from .formats import FORMATS, MIXED, Format
from .huggingface import yaml_header

FORMAT_VERSION = 4  # incremented when an exporter writes the same rows differently

_REMEDY = "`interleave verify --repair`, or delete the folder and `interleave run --select exports`"

# Tables and columns that name the packs and models that the rows came from.
_SOURCES = {
    "packs": ("prompts", "pack"),
    "planners": ("plans", "planner"),
    "generators": ("attempts", "generator"),
    "critics": ("attempts", "critic"),
    "scorers": ("scores", "scorer"),
}
_SPLITS = """
    SELECT 'prompts: ' || split AS split, count(*) FROM prompts GROUP BY 1
    UNION ALL
    SELECT 'steps: ' || coalesce(split, drop_reason, 'unused'), count(*) FROM steps GROUP BY 1
    ORDER BY 1
"""

_IMPORT = "{import} ({source}; licence: {licence}; {rows} rows, weight {weight:g})"
# Packs that are files of prompts have no banks; users' requests are no pack.
_PROMPT_FILES = """
    SELECT DISTINCT categories.description FROM categories JOIN prompts USING (pack, subcategory)
    WHERE len(banks) = 0 AND template_id = 'imported'
"""


@dataclass(frozen=True)
class Card:
    """Content and origin of an export.

    Args:
        fingerprint: a hash of everything it depends on.
        mix: see `TrainingSources.mix`.
    """

    name: str
    title: str
    use: str
    fingerprint: str
    counts: dict[str, int]
    splits: dict[str, int]
    sources: dict[str, list[str]]
    thresholds: dict[str, Any]
    tables: dict[str, str | None]
    files: dict[str, str]
    mix: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        sources = {what: ", ".join(names) for what, names in self.sources.items()}
        parts = [
            f"# {self.title}\n\n{self.use}\n",
            simulation_note(self.sources),
            markdown_section("Rows", "what", "rows", self.counts),
            markdown_section("Prompts and steps by split", "split", "count", self.splits),
            markdown_section("Sources", "what", "names", sources),
            markdown_section("Thresholds", "setting", "value", self.thresholds),
            markdown_section("Content hashes of the tables", "table", "sha256", self.tables),
            markdown_section("Hashes of the files", "file", "sha256", self.files),
        ]
        return "\n".join(part for part in parts if part)


def export_all(home: Home, settings: CurationSettings) -> list[Card]:
    """Write the exports named in the settings to `home.exports`, each to the folder of its name.

    Raises FoundryError where an image is missing or damaged (BadImageError), a row's placeholders
    and images differ, or the folder cannot be written.
    """
    return [export(home, settings, name) for name in settings.export_formats]


def export(home: Home, settings: CurationSettings, name: str, round: int | None = None) -> Card:
    """Write one export, unless it is up to date; raises what `export_all` does.

    Args:
        round: number of the round whose sets are exported, to a folder of its own; None: the
            lineage's.
    """
    sources, form = TrainingSources(home, settings, round), FORMATS[name]
    path, origin = sources.exports / name, _origin(sources, form.tables)
    if name in MIXED and (mix := sources.mix(form.tables)):
        used = [_IMPORT.format(**each) for each in sources.import_origins(form.tables)]
        origin |= {"mix": mix, "sources": origin["sources"] | {"imports": used}}
    parts = [FORMAT_VERSION, name, origin, settings.exports]
    fingerprint = content_digest(parts)
    if (stored := read_card(path)).get("fingerprint") == fingerprint:
        return Card(**stored)
    try:
        with atomic_path(path) as draft:
            draft.mkdir()
            folder = ExportFolder(draft, sources)
            counts, files = form.write(folder, settings.exports), folder.hashes()
            use = form.use_of(counts)
            card = Card(name, form.title, use, fingerprint, counts, files=files, **origin)
            option = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
            (draft / CARD).write_bytes(orjson.dumps(asdict(card), option=option))
            header = _header(form, card)
            (draft / "README.md").write_text(header + card.markdown(), "utf-8")
            write_sums(draft, files)
    except OSError as error:
        raise FoundryError(f"{path} cannot be written: {error.strerror or error}") from error
    return Card(**read_card(path))


def _header(form: Format, card: Card) -> str:
    """The YAML that the Hub and `datasets` read, in formats that they know."""
    if form.header is None:
        return ""
    simulated = ["simulated"] if simulation_note(card.sources) else []
    shared = {"license": "apache-2.0", "tags": ["interleave-foundry", *simulated]}
    return yaml_header(shared | form.header(card.counts))


def _origin(sets: TrainingSources, tables: tuple[Table, ...]) -> dict[str, Any]:
    home, settings, connection = sets.home, sets.settings, duckdb_session(sets.home)
    of_round = sets.round is not None
    hashes = {table.name: sets.hash(table) for table in tables}
    pulled = _pulled_sources(home, hashes)
    sources = {
        what: sorted(_distinct(connection, *at) | pulled.get(what, set()))
        for what, at in _SOURCES.items()
    }
    prompts = {
        version
        for table in tables
        if "agent_prompt_version" in table.columns
        for version in _distinct(connection, table.name, "agent_prompt_version")
    }
    if files := sorted(row[0] for row in connection.execute(_PROMPT_FILES).fetchall()):
        sources["prompt files"] = files
    values = settings.model_dump(mode="json", exclude={"exports": True, "planner": {"comm"}})
    return {
        "sources": sources | {"agent prompts": sorted(prompts)},
        "splits": {} if of_round else dict(connection.execute(_SPLITS).fetchall()),
        "thresholds": {
            "theta": None if of_round else theta_of(connection, settings.split),
            "split.unit": settings.split.unit,
            **dict(_flatten(values)),
        },
        "tables": hashes,
    }


def _pulled_sources(home: Home, hashes: Mapping[str, str | None]) -> dict[str, set[str]]:
    """Sources of the tables that were pulled from the Hub, by their cards."""
    found: dict[str, set[str]] = {}
    for folder in sorted(home.hub.glob("*")):
        card = read_card(folder)
        tables = card.get("tables") or {}
        if any(digest and digest == tables.get(name) for name, digest in hashes.items()):
            for what, names in card["sources"].items():
                found.setdefault(what, set()).update(names)
    return found


def _distinct(connection: duckdb.DuckDBPyConnection, table: str, column: str) -> set[str]:
    rows = connection.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall()
    return {str(row[0]) for row in rows}


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings with their dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def export_checks(home: Home) -> Iterator[Check]:
    """A check a file of every export; folders of other people have neither card nor sums."""
    for folder in sorted(home.exports.glob("[!.]*")):
        if (folder / SUMS_FILE).exists() or (folder / CARD).exists():
            yield from folder_checks("export", folder, partial(_damage, folder))
            for image in sorted(folder.glob("images/*/*.png")):
                yield Check("export", str(image), partial(_verify_image, folder, image))
    for file in sorted(home.exports.glob("generations/*/data/*.parquet")):
        yield Check("export", str(file), partial(_verify_parquet, file))


def _verify_image(folder: Path, image: Path) -> list[Damage]:
    if len(image.stem) != 64 or not image.exists() or file_sha256(image) == image.stem:
        return []  # a white canvas has another name, and is listed with the files
    return [_damage(folder, image.relative_to(folder).as_posix(), "its bytes have another hash")]


def _verify_parquet(file: Path) -> list[Damage]:
    try:
        for _ in pq.ParquetFile(file, page_checksum_verification=True).iter_batches():
            pass
    except FileNotFoundError:
        return []
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        remedy = "delete it and `interleave run --select generations`"
        return [Damage("export", str(file), f"is damaged ({first_line(error)})", remedy)]
    return []


def _damage(folder: Path, name: str, problem: str) -> Damage:
    return Damage("export", str(folder / name), problem, _REMEDY, (folder.name,))
