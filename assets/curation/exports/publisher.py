"""Writes the exports of a home, each with its card, and skips those that would not change."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from schemas import Table
from warehouse import Home

from .. import cards
from ..cards import Card
from ..settings import CurationSettings, ExportSettings
from . import huggingface, llamafactory, reference, verl
from .folder import CARD, Folder, fingerprint_of, publish

FORMAT_VERSION = 2  # raised when an exporter writes the same rows differently


@dataclass(frozen=True)
class Exported:
    """A published export. `changed` is False when it was there already."""

    name: str
    path: Path
    changed: bool
    card: Card


@dataclass(frozen=True)
class _Format:
    title: str
    use: str
    tables: tuple[Table, ...]
    write: Callable[[Folder, ExportSettings], dict[str, int]]
    head: Callable[[Mapping[str, int]], str] = lambda counts: ""


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


def export_all(
    home: Home, settings: CurationSettings, folder: Path | None = None
) -> list[Exported]:
    """Write the exports named in the settings below `folder` (default: the home's exports).

    Raises:
        PlaceholderError: a row's placeholders and images differ.
        BadImageError: a picture is missing or damaged.
        FoundryError: the folder cannot be written.
    """
    root = folder or home.exports
    return [_export(home, settings, name, root / name) for name in settings.exports.formats]


def published(home: Home, settings: CurationSettings) -> dict[str, str | None]:
    """Fingerprint of every export of the settings as it is on disk; None where there is none."""
    return {name: fingerprint_of(home.exports / name) for name in settings.exports.formats}


def _export(home: Home, settings: CurationSettings, name: str, path: Path) -> Exported:
    form = _FORMATS[name]
    facts: dict[str, Any] = {
        "sources": cards.sources(home) | {"agent prompts": cards.agent_prompts(home, form.tables)},
        "splits": cards.splits(home),
        "thresholds": cards.thresholds(home, settings),
        "tables": cards.content_hashes(home, form.tables),
    }
    fingerprint = _digest([FORMAT_VERSION, name, facts, settings.exports.model_dump(mode="json")])

    def write(target: Path) -> None:
        folder = Folder(home, target)
        counts = form.write(folder, settings.exports)
        card = Card(
            name=name,
            title=form.title,
            use=form.use,
            fingerprint=fingerprint,
            counts=counts,
            files=folder.hashes(),
            **facts,
        )
        (target / CARD).write_bytes(card.json())
        (target / "README.md").write_text(form.head(counts) + card.markdown(), "utf-8")

    changed = publish(path, fingerprint, write)
    return Exported(name, path, changed, Card(**orjson.loads((path / CARD).read_bytes())))


def _digest(facts: object) -> str:
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()
