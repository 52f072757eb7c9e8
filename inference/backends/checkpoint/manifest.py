"""Checkpoints: manifests (`interleave.json`, how a model is prompted), table and references."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field, PositiveInt, ValidationError

from schemas import FoundryError
from schemas.errors import first_problem
from schemas.training import CHECKPOINTS, CheckpointRow
from warehouse import Home
from warehouse.storage import first_line, safe_name

from ...agent_prompts.templates import is_file, version_of
from ...calls.hashing import stable_hash
from ..model_files import download_command, weights_revision
from .promotions import AGENT_NAMES, NAMES_BY_ROLE, versions_in_use

MANIFEST_FILE = "interleave.json"
RECORD = "training.json"  # results of its training, and the `files` of the folder
PROMOTED = "promoted"
IDENTITY = re.compile(r"(?P<name>[\w.-]+)@(?P<version>[\w.-]+)")
HUB_ID = re.compile(r"(?P<id>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")

# A model in the cache of Hugging Face.
_CACHED = re.compile(r"/models--(?P<name>[^/]+)/snapshots/(?P<revision>[^/]+)$")
_NONE: Mapping["PromptName", str] = MappingProxyType({})

AgentRole = Literal["planner", "critic"]
PromptName = Literal["critic", "planner_text", "planner_interleaved"]
Answers = Literal["usual", "constrained", "sampled"]
"""Usual: decoded as the checkpoint's manifest says; constrained: in the role's form, whatever the
checkpoint has learned; sampled: at the temperature of its generation_config, else 1 as in GRPO."""

_PROMPTS_BY_ROLE: dict[AgentRole, tuple[PromptName, ...]] = {
    "planner": ("planner_text", "planner_interleaved"),
    "critic": ("critic",),
}


class CheckpointError(FoundryError):
    """A checkpoint that does not exist, is damaged, or does not fit its use."""


class Manifest(BaseModel, frozen=True):
    """What the prompts of a checkpoint depend on, as it was trained."""

    name: str = Field(description="Name in the table `checkpoints`")
    version: str = Field(description="Its version there")
    role: Literal["planner", "critic", "both", "base"] = Field(
        description="Role it was trained for"
    )
    agent_prompts: dict[PromptName, str] = Field(
        description="Prompts that it was trained with: name@version, or a file (.jinja) beside it"
    )
    image_max_pixels: PositiveInt = Field(description="Larger images are shrunk to it")
    image_min_pixels: PositiveInt = Field(32 * 32, description="Smaller images are enlarged")
    many_images_max_pixels: PositiveInt | None = Field(
        None, description="The same for each of five images and more; null: no difference"
    )
    max_new_tokens: dict[AgentRole, PositiveInt] = Field(description="Longest answer of a role")
    decoding: Literal["greedy", "own"] = Field(
        "greedy", description="own: as the model's generation_config says"
    )
    repeats_first_prompt: bool = Field(
        False,
        description="Whether a critic gets a step's first prompt as the rewritten one, too, as in "
        "the authors' demo; else none, as in training data",
    )

    @property
    def pixels(self) -> tuple[int, int, int]:
        """Least and most pixels of an image, and the most of each of many (`MANY_IMAGES`)."""
        most = self.image_max_pixels
        return self.image_min_pixels, most, self.many_images_max_pixels or most

    @property
    def identity(self) -> str:
        """`name@version`, as in tables and the call ledger."""
        return f"{self.name}@{self.version}"

    def has_role(self, role: AgentRole) -> bool:
        """Whether the checkpoint was trained for a role."""
        has_prompts = set(_PROMPTS_BY_ROLE[role]) <= self.agent_prompts.keys()
        is_complete = has_prompts and role in self.max_new_tokens
        return is_complete and self.role in (role, "both", "base")

    def check_role(self, role: AgentRole) -> None:
        """Raises `CheckpointError` if the checkpoint was not trained for a role."""
        if not self.has_role(role):
            raise CheckpointError(
                f"checkpoint {self.identity} is a {self.role}, not a {role}; "
                f"name another one in `checkpoint.{role}` of the profile"
            )

    def prompting(self, role: AgentRole, answers: Answers = "usual") -> dict[str, Any]:
        """Fields of `AgentModel`: the prompts and limits of a role's training, for a server.

        Constrained answers are JSON whose schema the server enforces; sampled ones are at the
        server's default, which is the temperature of the model's generation_config, else 1.
        """
        is_greedy = self.decoding == "greedy" and answers != "sampled"
        names = [name for name in self.agent_prompts if name in _PROMPTS_BY_ROLE[role]]
        return {
            "form": "schema" if answers == "constrained" else "tags",
            "temperature": 0 if is_greedy else None,
            "max_tokens": self.max_new_tokens[role],
            "image_pixels": [self.image_min_pixels, self.image_max_pixels],
            "many_images_pixels": self.many_images_max_pixels,
            "repeats_first_prompt": self.repeats_first_prompt,
            "agent_prompts": {str(name): self.agent_prompts[name] for name in names},
        }


def read_manifest(folder: Path, foreign_prompts: Mapping[PromptName, str] = _NONE) -> Manifest:
    """The manifest in a checkpoint's folder; of a model without one, what the authors' have.

    `foreign_prompts`: agent prompts of a model without manifest. Raises `CheckpointError`: there is
    no such folder, no valid manifest in it, or no such prompts.
    """
    if not folder.is_dir():
        raise CheckpointError(f"no such checkpoint folder: {folder}")
    path = folder / MANIFEST_FILE
    if not path.is_file() and (folder / "config.json").is_file() and foreign_prompts:
        return _foreign_manifest(folder, foreign_prompts)
    if not path.is_file():
        raise CheckpointError(
            f"{folder} is not a checkpoint: there is no {MANIFEST_FILE} in it; for a model that "
            "was not trained here, name its prompts in `checkpoint.agent_prompts` of the profile"
        )
    try:
        return _with_files(Manifest.model_validate_json(path.read_bytes()), folder)
    except ValidationError as error:
        raise CheckpointError(f"{path}: {first_problem(error)}") from error


def _with_files(manifest: Manifest, folder: Path) -> Manifest:
    """The manifest with the paths of prompts that are files of the checkpoint's folder."""
    paths = {
        name: str(folder / Path(prompt).name) if is_file(prompt) else prompt
        for name, prompt in manifest.agent_prompts.items()
    }
    return manifest.model_copy(update={"agent_prompts": paths})


def _foreign_manifest(folder: Path, prompts: Mapping[PromptName, str]) -> Manifest:
    """Limits and turns are those of the authors' inference; the version follows from weights,
    prompts and turns."""
    cached = _CACHED.search(folder.as_posix())
    revision = cached["revision"] if cached else weights_revision(str(folder), None)
    versions = {name: version_of(prompt) for name, prompt in prompts.items()}
    return Manifest(
        name=cached["name"].replace("--", "/") if cached else folder.name,
        version=f"{revision[:8]}-{stable_hash(versions, 'repeats_first_prompt')[:6]}",
        role="both",
        agent_prompts=dict(prompts),
        image_max_pixels=1024 * 1024,
        many_images_max_pixels=384 * 384,
        max_new_tokens={"planner": 4096, "critic": 4096},
        decoding="own",
        repeats_first_prompt=True,
    )


def checkpoint_rows(home: Home, name: str | None = None) -> list[CheckpointRow]:
    """All checkpoints, or those of a name, oldest first."""
    rows = map(CheckpointRow.model_validate, home.lake.read(CHECKPOINTS).to_pylist())
    selected = [row for row in rows if name in (None, row.name)]
    return sorted(selected, key=lambda row: (row.created_at, row.version))


def find_checkpoint(name: str, version: str, home: Home) -> CheckpointRow:
    """Raises `CheckpointError` if there is none of this name and version."""
    rows = checkpoint_rows(home)
    for row in rows:
        if (row.name, row.version) == (name, version):
            return row
    known = ", ".join(map(_reference, rows)) or "none yet"
    raise CheckpointError(f"no checkpoint {name}@{version} in {home.root}; there are: {known}")


def checkpoint_folder(name: str, version: str, home: Home, area: str = "checkpoints") -> Path:
    """The folder of a checkpoint, which need not exist yet."""
    parts = safe_name(name, "checkpoint"), safe_name(version, "version")
    return home.local.absolute().joinpath(area, *parts)


def usable_folder(name: str, version: str, home: Home) -> Path:
    """The folder of a registered version.

    Raises `CheckpointError`: there is no such version, or its folder is incomplete.
    """
    find_checkpoint(name, version, home)
    if not is_complete_folder(folder := checkpoint_folder(name, version, home)):
        raise CheckpointError(
            f"{name} {version}: {folder} is incomplete; run `interleave run --select {name}` "
            "to make it again"
        )
    return folder


def is_complete_folder(folder: Path) -> bool:
    """Whether every file of a checkpoint's folder exists, also as the target of a link."""
    files = recorded_files(folder)
    return files is not None and all((folder / name).exists() for name in files)


def recorded_files(folder: Path) -> list[str] | None:
    """Files of a checkpoint's folder by its record; None: it has no record that can be read."""
    try:
        return list(orjson.loads((folder / RECORD).read_bytes())["files"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None


def resolve(reference: str, role: AgentRole, home: Home, download: bool = True) -> Path:
    """The folder of `promoted`, of `name@version`, of a path, or of an id at Hugging Face.

    Args:
        download: a model that is not in the cache of Hugging Face.

    Raises:
        CheckpointError: none was promoted yet, there is none of that name and version, or the
            model is not here and is not, or cannot be, downloaded.
    """
    if reference == PROMOTED:
        reference = promoted(home).get(role, "")
        if not reference:
            raise CheckpointError(
                f"no {role} was promoted yet in {home.root}; train one with `interleave run`, or "
                "promote one that `interleave checkpoints` lists: `interleave promote NAME VERSION`"
            )
    if match := IDENTITY.fullmatch(reference):
        row = find_checkpoint(match["name"], match["version"], home)
        own = home.local.absolute() / "checkpoints" / row.name / row.version
        return own if own.is_dir() else home.local / row.uri  # a home may have been moved
    if match := _hub_id(reference):
        return _snapshot(match["id"], match["revision"], download)
    return Path(reference).expanduser()


def is_at_hub_alone(reference: str) -> bool:
    """Whether a model would have to be downloaded from Hugging Face first."""
    match = _hub_id(reference)
    return match is not None and _cached(match["id"], match["revision"]) is None


def is_unpinned(reference: str) -> bool:
    """Whether a reference is an id at Hugging Face without a revision."""
    match = _hub_id(reference)
    return match is not None and match["revision"] is None


def _hub_id(reference: str) -> re.Match[str] | None:
    is_folder = Path(reference).expanduser().is_dir()
    return None if is_folder else HUB_ID.fullmatch(reference)


def _cached(model: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download

    with suppress(Exception):  # it is not there, or not all of it
        return Path(snapshot_download(model, revision=revision, local_files_only=True))
    return None


def _snapshot(model: str, revision: str | None, download: bool) -> Path:
    """The folder of a model in the cache of Hugging Face."""
    from huggingface_hub import snapshot_download

    if folder := _cached(model, revision):
        return folder
    if not download:
        command = download_command(model, revision)
        raise CheckpointError(f"{model} is not here yet; the first call downloads it, or {command}")
    try:
        return Path(snapshot_download(model, revision=revision))
    except Exception as error:  # of huggingface_hub, its HTTP client, the disk
        raise CheckpointError(
            f"{model} is neither a folder nor in the cache of Hugging Face, and cannot be "
            f"downloaded: {first_line(error)}"
        ) from error


def promoted(home: Home) -> dict[AgentRole, str]:
    """`name@version` of the promoted checkpoints of one moment; roles without one are left out."""
    in_use = versions_in_use(home, AGENT_NAMES)
    return {
        role: f"{name}@{in_use[name]}"
        for role, names in NAMES_BY_ROLE.items()
        for name in names
        if name in in_use
    }


def newest(name: str, home: Home) -> str | None:
    """`name@version` of the promoted version, else of the newest; None: there is none."""
    in_use = versions_in_use(home, [name]).get(name)  # before the rows: it is among them
    rows = checkpoint_rows(home, name)
    rows.sort(key=lambda row: row.version == in_use)
    return _reference(rows[-1]) if rows else None


def is_agent_of(identity: str, agent: str) -> bool:
    """Whether an agent, as tables name it, is a checkpoint `name@version`.

    `backend/name@version` in this process; a server's ends in a hash of its settings.
    """
    name = agent.rpartition("/")[2]
    return name == identity or name.startswith(f"{identity}-")


def _reference(row: CheckpointRow) -> str:
    return f"{row.name}@{row.version}"
