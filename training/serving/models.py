"""Models to serve: a checkpoint by its name, a folder, or a model of Hugging Face."""

import json
from dataclasses import dataclass
from pathlib import Path

from inference.backends.checkpoint.manifest import (
    MANIFEST_FILE,
    CheckpointError,
    Manifest,
    read_manifest,
)
from warehouse import Home

from ..registry import CheckpointRegistry


@dataclass(frozen=True)
class ServableAgent:
    """A model to serve.

    Args:
        name: the server's name for it.
        source: folder, or id at Hugging Face.
        revision: at Hugging Face; None: the newest.
        manifest: how to prompt it; None where we did not train it.
        context_length: positions in tokens; None: unknown.
    """

    name: str
    source: str
    revision: str | None = None
    manifest: Manifest | None = None
    context_length: int | None = None

    @property
    def is_local(self) -> bool:
        return Path(self.source).is_dir()


def find_model(reference: str, home: Home, version: str | None = None) -> ServableAgent:
    """The model of a name that `interleave checkpoints` lists, of a folder, or of an id.

    Args:
        version: of a name; None: the promoted one, or else the newest. Of an id: its revision.

    Raises:
        CheckpointError: there is none, or its folder is incomplete.
    """
    registry = CheckpointRegistry(home)
    known = {row.name for row in registry.rows()}
    if reference in known:
        return _in_folder(_registered_folder(registry, reference, version))
    folder = Path(reference).expanduser()
    if folder.is_dir():
        if version:
            raise CheckpointError(f"{reference} is a folder, which has no versions")
        return _in_folder(folder.absolute())
    if _is_hub_id(reference):
        return ServableAgent(reference, reference, version)
    names = ", ".join(sorted(known)) or "none yet"
    raise CheckpointError(
        f"no checkpoint {reference} in {home.root}; there are: {names}. A folder or an id of "
        "Hugging Face (owner/name) can be served as well"
    )


def _registered_folder(registry: CheckpointRegistry, name: str, version: str | None) -> Path:
    if version:
        row = registry.find(name, version)
    else:
        row = registry.promoted(name) or registry.rows(name)[-1]
    if not registry.is_complete(row.name, row.version):
        raise CheckpointError(
            f"{row.name} {row.version}: its folder is incomplete; run `interleave run --select "
            f"{row.name}` to make it again"
        )
    return registry.folder(row.name, row.version)


def _in_folder(folder: Path) -> ServableAgent:
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} is not a checkpoint: there is no config.json in it")
    manifest = read_manifest(folder) if (folder / MANIFEST_FILE).is_file() else None
    name = manifest.identity if manifest else folder.name
    return ServableAgent(
        name, str(folder), manifest=manifest, context_length=_context_length(folder)
    )


def _context_length(folder: Path) -> int | None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return config.get("text_config", config).get("max_position_embeddings")


def _is_hub_id(reference: str) -> bool:
    owner, slash, name = reference.partition("/")
    return bool(owner.strip(".~") and slash and name) and "/" not in name
