"""What is served: a checkpoint by its name, a folder, or a model of Hugging Face."""

import json
from dataclasses import dataclass
from pathlib import Path

from inference.backends.checkpoint.manifest import FILE, Manifest, read_manifest
from warehouse import Home

from ..registry import CheckpointRegistry, RegistryError


@dataclass(frozen=True)
class ServableAgent:
    """A model to serve.

    Args:
        name: by which the server is asked for it.
        source: folder, or id at Hugging Face.
        revision: at Hugging Face; None: the newest.
        manifest: how it wants to be asked; None where we did not train it.
        longest: tokens that it can tell apart by their places; None: not known here.
    """

    name: str
    source: str
    revision: str | None = None
    manifest: Manifest | None = None
    longest: int | None = None

    @property
    def is_local(self) -> bool:
        return Path(self.source).is_dir()


def find_model(reference: str, home: Home, version: str | None = None) -> ServableAgent:
    """The model of a name that `interleave checkpoints` lists, of a folder, or of an id.

    Args:
        version: of a name; None: the promoted one, or else the newest. Of an id: its revision.

    Raises:
        CheckpointError: there is none, or its folder is not whole.
    """
    checkpoints = CheckpointRegistry(home)
    known = {row.name for row in checkpoints.rows()}
    if reference in known:
        return _in_folder(_registered(reference, version, checkpoints))
    folder = Path(reference).expanduser()
    if folder.is_dir():
        if version:
            raise RegistryError(f"{reference} is a folder, which has no versions")
        return _in_folder(folder.absolute())
    if _may_be_an_id(reference):
        return ServableAgent(reference, reference, version)
    names = ", ".join(sorted(known)) or "none yet"
    raise RegistryError(
        f"no checkpoint {reference} in {home.root}; there are: {names}. A folder or an id of "
        "Hugging Face (owner/name) can be served as well"
    )


def _registered(name: str, version: str | None, checkpoints: CheckpointRegistry) -> Path:
    if version:
        row = checkpoints.find(name, version)
    else:
        row = checkpoints.promoted(name) or checkpoints.rows(name)[-1]
    if not checkpoints.whole(row.name, row.version):
        raise RegistryError(
            f"{row.name} {row.version}: its folder is incomplete; run `interleave run --select "
            f"{row.name}` to make it again"
        )
    return checkpoints.folder(row.name, row.version)


def _in_folder(folder: Path) -> ServableAgent:
    if not (folder / "config.json").is_file():
        raise RegistryError(f"{folder} is not a checkpoint: there is no config.json in it")
    manifest = read_manifest(folder) if (folder / FILE).is_file() else None
    name = manifest.identity if manifest else folder.name
    return ServableAgent(name, str(folder), manifest=manifest, longest=_longest(folder))


def _longest(folder: Path) -> int | None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return config.get("text_config", config).get("max_position_embeddings")


def _may_be_an_id(reference: str) -> bool:
    owner, slash, name = reference.partition("/")
    return bool(owner.strip(".~") and slash and name) and "/" not in name
