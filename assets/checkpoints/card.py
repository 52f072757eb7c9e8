"""The model card of a checkpoint: what it is, what it was made from, how to use it."""

from collections.abc import Mapping

import yaml

from schemas.yaml_config import ConfigModel

from .publish import Record
from .recipes import Recipe

_WHAT = {
    "base": "The model that planner and critic start from.",
    "planner": "Turns a request into the steps of an interleaved story in pictures and text.",
    "critic": "Compares a picture with the one before it, accepts it or rewrites its prompt.",
    "both": "One agent that plans stories and judges their pictures.",
}


def model_card(recipe: Recipe, record: Record) -> str:
    """Markdown with the front matter that Hugging Face reads."""
    name, version = recipe.name, recipe.version
    parts = [
        _front_matter(),
        f"# {name} {version}\n\n{_WHAT[recipe.role]} Made by Interleave Foundry, "
        f"{record.created_at:%Y-%m-%d}.\n",
        _table("Made from", "what", "value", _origin(recipe, record)),
        _table("Metrics of training", "metric", "value", record.metrics),
        f"## Settings\n\n```yaml\n{_yaml(recipe.settings)}```\n",
        f"## Use\n\n`interleave promote {name} {version}` puts it in use. The agent prompts that "
        "it was trained with are named in `interleave.json`.\n",
    ]
    return "\n".join(parts)


def _front_matter() -> str:
    return "---\nlibrary_name: transformers\npipeline_tag: image-text-to-text\n---\n"


def _origin(recipe: Recipe, record: Record) -> dict[str, object]:
    return {
        "parent": record.parent or "none",
        "data set": ", ".join(recipe.data.tables) if recipe.data else "none",
        "data set version": record.dataset_version or "none",
        "rows": record.dataset_rows,
        "configuration": record.config_hash,
    }


def _table(title: str, key: str, value: str, rows: Mapping[str, object]) -> str:
    lines = [f"## {title}", "", f"| {key} | {value} |", "| --- | --- |"]
    lines += [f"| {name} | {_shown(cell)} |" for name, cell in rows.items()]
    return "\n".join([*lines, ""])


def _shown(cell: object) -> object:
    return f"{cell:.6g}" if isinstance(cell, float) else cell


def _yaml(settings: ConfigModel) -> str:
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
