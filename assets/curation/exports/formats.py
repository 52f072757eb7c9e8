"""Formats of exports: LLaMA-Factory, verl, the reference, Hugging Face datasets, WebDataset."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from schemas import Table
from schemas.curation import CRITIC_DPO, CRITIC_RL, CRITIC_SFT, PLANNER_RL, PLANNER_SFT, SEQUENCES
from training.sft.rows import DATASET_INFO, DataSetFile
from warehouse import Home
from warehouse.lake import ALL
from warehouse.parted_files import ParquetRows, PartedFile

from ..settings import ExportSettings
from ..sources import images_of
from . import huggingface
from .folder import ExportFolder


@dataclass(frozen=True)
class Format:
    """How tables become files of a folder.

    `write` returns rows by file, pattern of files or configuration, from which `header` makes the
    card's YAML. `use_of_parts` replaces `use` where a set is several files.
    """

    title: str
    use: str
    tables: tuple[Table, ...]
    write: Callable[[ExportFolder, ExportSettings], dict[str, int]]
    header: Callable[[Mapping[str, int]], dict[str, Any]] | None = None
    use_of_parts: str | None = None

    def use_of(self, counts: Mapping[str, int]) -> str:
        in_parts = any("*" in name for name in counts)
        return self.use_of_parts if in_parts and self.use_of_parts else self.use


_SHAREGPT = {
    "formatting": "sharegpt",
    "columns": {"messages": "messages", "images": "images"},
    "tags": {f"{name}_tag": name for name in ("role", "content", "user", "assistant")},
}
_IDS = ("row_id", "prompt_id")  # LLaMA-Factory ignores them
# The reference's reward recognises by this name that an image is to be generated, not edited.
_WHITE = "data/interleave/white.png"
_REFERENCE_SEQUENCES = {
    "easy": "interleaved_gen_simple.json",
    "reflection": "interleaved_gen_reflection.json",
}

_IMAGES = pc.list_value_length(pc.field("images"))  # their number

_VERL_EXTRA = ("row_id", "origin_prompt", "rewritten_prompt", "origin_image", "edited_image")


def _write_llamafactory(folder: ExportFolder, settings: ExportSettings) -> dict[str, int]:
    """Sharegpt JSON files and the `dataset_info.json` that declares them.

    Image paths are relative to the folder: to `media_dir`, which defaults to `dataset_dir`.
    """
    parts = {
        "planner_sft": (PLANNER_SFT, None),
        "critic_sft": (CRITIC_SFT, None),
        "sequences_easy": (SEQUENCES, pc.field("form") == "easy"),
        "sequences_reflection": (SEQUENCES, pc.field("form") == "reflection"),
    }
    sets = {name: _sharegpt_samples(folder, *part) for name, part in parts.items()}
    return _write_data_sets(folder, settings, sets, _SHAREGPT)


def _write_data_sets(
    folder: ExportFolder,
    settings: ExportSettings,
    sets: Mapping[str, Iterator[dict[str, Any]]],
    form: Mapping[str, Any],
) -> dict[str, int]:
    info, counts = {}, {}
    for name, rows in sets.items():
        file = DataSetFile(folder.path, name, settings.rows_per_file)
        for row in rows:
            file.add(row)
        place = file.close()
        info[name] = {**place, **form}
        counts[place.get("file_name", f"{name}/*.json")] = file.count
    (folder.path / DATASET_INFO).write_bytes(orjson.dumps(info, option=orjson.OPT_INDENT_2))
    return counts


def _write_preferences(folder: ExportFolder, settings: ExportSettings) -> dict[str, int]:
    """As `_write_llamafactory`, in its form of pairs: the files declare `ranking`."""
    parts = ("messages", "chosen", "rejected")
    columns = {column: column for column in (*parts, "images")}
    samples = (
        {
            **{column: row[column] for column in (*parts, *_IDS, "source")},
            "images": [folder.add_image(image) for image in row["images"]],
        }
        for row in folder.rows(CRITIC_DPO)
    )
    form = {**_SHAREGPT, "columns": columns, "ranking": True}
    return _write_data_sets(folder, settings, {"critic_dpo": samples}, form)


def _sharegpt_samples(folder: ExportFolder, table: Table, where: Any) -> Iterator[dict[str, Any]]:
    """Samples with images come first.

    LLaMA-Factory infers the type of its images column from the first 1,000 rows (of each worker's
    contiguous share) and fails at an image that follows 1,000 rows without one.
    """
    for condition in (_IMAGES > 0, _IMAGES == 0):
        chosen = condition if where is None else where & condition
        for row in folder.training_rows(table, chosen):
            images = [folder.add_image(image) for image in row["images"]]
            yield {"messages": row["messages"], "images": images, **{n: row[n] for n in _IDS}}


def _write_verl(folder: ExportFolder, settings: ExportSettings) -> dict[str, int]:
    """Parquet in verl's columns, with the images embedded."""
    text, number = pa.string(), pa.float64()
    truth = {"success": pa.bool_(), "semantics": number, "quality": number}
    extra: dict[str, pa.DataType] = dict.fromkeys(_VERL_EXTRA, text)
    counts = _verl_file(folder, settings, CRITIC_RL, truth, extra)
    if folder.home.lake.exists(PLANNER_RL, ALL):
        extra = {"row_id": text, "images": pa.list_(text)}
        counts |= _verl_file(folder, settings, PLANNER_RL, {"request": text}, extra)
    return counts


def _verl_file(
    folder: ExportFolder,
    settings: ExportSettings,
    table: Table,
    truth: Mapping[str, pa.DataType],
    extra: Mapping[str, pa.DataType],
) -> dict[str, int]:
    """A set as a file, or several; `truth` and `extra` are columns that a reward reads."""
    role, path = table.name.removesuffix("_rl"), folder.path / f"{table.name}.parquet"
    write = partial(ParquetRows, schema=_verl_schema(truth, extra), compression="zstd")
    file = PartedFile(path, folder.path, settings.rows_per_file, write)
    for index, row in enumerate(folder.training_rows(table)):
        images = [{"bytes": folder.home.images.get(sha256).data} for sha256 in images_of(row)]
        known = row.get("evaluation", row)
        ground_truth = {name: known[name] for name in truth}
        file.add(
            {
                "data_source": f"interleave_{role}",
                "prompt": row["messages"],
                "images": images,
                "ability": role,
                "reward_model": {"style": "rule", "ground_truth": ground_truth},
                "extra_info": {"index": index, "split": "train", **{n: row[n] for n in extra}},
            }
        )
    return {f"{path.stem}-*.parquet" if file.close() else path.name: file.count}


def _verl_schema(truth: Mapping[str, pa.DataType], extra: Mapping[str, pa.DataType]) -> pa.Schema:
    text = pa.string()
    return pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "images": pa.list_(pa.struct({"bytes": pa.binary()})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": pa.struct(truth)}),
            "extra_info": pa.struct({"index": pa.int64(), "split": text, **extra}),
        }
    )


def _write_reference(folder: ExportFolder, _settings: ExportSettings) -> dict[str, int]:
    """JSON lines with exactly the keys that the reference's loader reads, and its sequences where
    `sequences.form` is `reference`.

    Their paths are relative to the folder, in which the trainer must be started.
    """
    rows = (
        {
            "origin_prompt": row["origin_prompt"],
            "rewritten_prompt": row["rewritten_prompt"],
            "origin_image_path": _source_path(folder, row["origin_image"]),
            "edited_image_path": folder.add_image(row["edited_image"]),
            "evaluation": row["evaluation"],
        }
        for row in folder.training_rows(CRITIC_RL)
    )
    counts = {"critic_rl.jsonl": folder.json_lines("critic_rl.jsonl", rows)}
    if folder.settings.sequences.form == "reference":
        for form in folder.settings.sequences.forms:
            name = _REFERENCE_SEQUENCES[form]
            counts[name] = folder.indented_json(name, _reference_sequences(folder, form))
    return counts


def _reference_sequences(folder: ExportFolder, form: str) -> Iterator[dict[str, Any]]:
    for row in folder.rows(SEQUENCES, pc.field("form") == form):
        images = [folder.add_image(image) for image in row["images"]]
        yield {"messages": row["messages"], "images": images}


def _source_path(folder: ExportFolder, sha256: str) -> str:
    if not _is_white(folder.home, sha256):
        return folder.add_image(sha256)
    if not (target := folder.path / _WHITE).exists():
        target.parent.mkdir(parents=True)
        target.write_bytes(folder.home.images.get(sha256).data)
    return _WHITE


@lru_cache(maxsize=100_000)
def _is_white(home: Home, sha256: str) -> bool:
    return home.images.get(sha256).is_white


# Those that trainers read: the others are what was made here, alone.
MIXED = ("llamafactory", "verl", "reference")
FORMATS = {
    "llamafactory": Format(
        "Interleave data for LLaMA-Factory",
        "Set `dataset_dir` to this folder and `dataset` to a name of `dataset_info.json`.",
        (PLANNER_SFT, CRITIC_SFT, SEQUENCES),
        _write_llamafactory,
    ),
    "verl": Format(
        "RL prompts for verl",
        "Set `data.train_files` to `critic_rl.parquet`, or to `planner_rl.parquet` where it is.",
        (CRITIC_RL, PLANNER_RL),
        _write_verl,
        use_of_parts="Set `data.train_files` to the list of the files "
        '(`"[$(ls $PWD/critic_rl-*.parquet | paste -sd,)]"`).',
    ),
    "reference": Format(
        "Critic RL prompts and sequences in the reference's format",
        "Start the trainer in this folder: paths in its files are relative to it. It has "
        "`interleaved_gen_simple.json` and `interleaved_gen_reflection.json` where "
        "`curation.sequences.form` is `reference`.",
        (CRITIC_RL, SEQUENCES),
        _write_reference,
    ),
    "preferences": Format(
        "Critic answers that people or scores prefer, for DPO with LLaMA-Factory",
        "Set `dataset_dir` to this folder, `dataset` to `critic_dpo` and `stage` to `dpo`.",
        (CRITIC_DPO,),
        _write_preferences,
    ),
    "huggingface": Format(
        "Interleave data as Hugging Face datasets",
        "`datasets.load_dataset(this_folder, 'critic_sft', split='train')`",
        huggingface.TABLES,
        huggingface.write_huggingface,
        huggingface.card_header,
    ),
    "webdataset": Format(
        "Interleave data as WebDataset",
        "`webdataset.WebDataset(...)` reads the tar files of a table; "
        "`datasets.load_dataset(this_folder, 'critic_sft_2_images', split='train')`",
        huggingface.WEBDATASET_TABLES,
        huggingface.write_webdataset,
        huggingface.webdataset_header,
    ),
}
