"""Writes the exports of a home, each with its card, and skips unchanged ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from inference.engine.hashing import content_digest
from schemas import Table
from warehouse import Home

from .. import cards
from ..cards import Card
from ..settings import CurationSettings, ExportSettings
from . import huggingface, llamafactory, reference, verl
from .folder import CARD, ExportFolder, publish

FORMAT_VERSION = 2  # incremented when an exporter writes the same rows differently


@dataclass(frozen=True)
class PublishedExport:
    """A published export. `changed`: False if it was up to date already."""

    name: str
    path: Path
    changed: bool
    card: Card


@dataclass(frozen=True)
class _Format:
    title: str
    use: str
    tables: tuple[Table, ...]
    write: Callable[[ExportFolder, ExportSettings], dict[str, int]]
    front_matter: Callable[[Mapping[str, int]], str] = lambda counts: ""


_FORMATS = {
    "llamafactory": _Format(
        "Interleave data for LLaMA-Factory",
        "Set `dataset_dir` to this folder and `dataset` to a name of `dataset_info.json`.",
        llamafactory.TABLES,
        lambda folder, _: llamafactory.write(folder),
    ),
    "verl": _Format(
        "Critic RL prompts for verl",
        "Set `data.train_files` to `critic_rl.parquet`. Where `images` holds paths, start verl in "
        "this folder.",
        verl.TABLES,
        verl.write,
    ),
    "reference": _Format(
        "Critic RL prompts in the reference's format",
        "Start the trainer in this folder: paths in `critic_rl.jsonl` are relative to it.",
        reference.TABLES,
        lambda folder, _: reference.write(folder),
    ),
    "huggingface": _Format(
        "Interleave data as Hugging Face datasets",
        "`datasets.load_dataset(this_folder, 'critic_sft', split='train')`",
        huggingface.TABLES,
        huggingface.write,
        huggingface.front_matter,
    ),
}


def export_all(home: Home, settings: CurationSettings) -> list[PublishedExport]:
    """Write the exports named in the settings.

    Raises:
        PlaceholderError: a row's placeholders and images differ.
        BadImageError: an image is missing or damaged.
        FoundryError: the folder cannot be written.
    """
    return [_export(home, settings, name) for name in settings.exports.formats]


def _export(home: Home, settings: CurationSettings, name: str) -> PublishedExport:
    form, path = _FORMATS[name], home.exports / name
    origin: dict[str, Any] = {
        "sources": cards.sources(home) | {"agent prompts": cards.agent_prompts(home, form.tables)},
        "splits": cards.splits(home),
        "thresholds": cards.thresholds(home, settings),
        "tables": {table.name: home.lake.content_hash(table) for table in form.tables},
    }
    parts = [FORMAT_VERSION, name, origin, settings.exports.model_dump(mode="json")]
    fingerprint = content_digest(parts)

    def write(target: Path) -> None:
        folder = ExportFolder(home, target)
        counts = form.write(folder, settings.exports)
        card = Card(
            name=name,
            title=form.title,
            use=form.use,
            fingerprint=fingerprint,
            counts=counts,
            files=folder.hashes(),
            **origin,
        )
        (target / CARD).write_bytes(card.json())
        (target / "README.md").write_text(form.front_matter(counts) + card.markdown(), "utf-8")

    changed = publish(path, fingerprint, write)
    return PublishedExport(name, path, changed, Card(**orjson.loads((path / CARD).read_bytes())))
