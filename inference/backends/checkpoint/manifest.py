"""Checkpoints: manifests (`interleave.json`, how a model is prompted), table and references."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, PositiveInt, ValidationError

from schemas import FoundryError
from schemas.errors import first_problem
from schemas.training import CHECKPOINTS, CheckpointRow
from warehouse import Home

from .promotions import versions_in_use

MANIFEST_FILE = "interleave.json"
PROMOTED = "promoted"

AgentRole = Literal["planner", "critic"]

# The checkpoints of a role, the one trained last in the pipeline first.
_NAMES_BY_ROLE: dict[AgentRole, tuple[str, ...]] = {
    "planner": ("planner_sft_checkpoint",),
    "critic": ("critic_rl_checkpoint", "critic_sft_checkpoint"),
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
    agent_prompts: dict[Literal["critic", "planner_text", "planner_interleaved"], str] = Field(
        description="Agent prompts (name@version) that it was trained with"
    )
    image_max_pixels: PositiveInt = Field(description="Larger images are shrunk to it")
    image_min_pixels: PositiveInt = Field(32 * 32, description="Smaller images are enlarged")
    max_new_tokens: dict[AgentRole, PositiveInt] = Field(description="Longest answer of a role")

    @property
    def identity(self) -> str:
        """`name@version`, as in tables and the call ledger."""
        return f"{self.name}@{self.version}"

    def check_role(self, role: AgentRole) -> None:
        """Raises `CheckpointError` if the checkpoint was not trained for a role."""
        prompts = ("critic",) if role == "critic" else ("planner_text", "planner_interleaved")
        missing = [name for name in prompts if name not in self.agent_prompts]
        if self.role not in (role, "both", "base") or role not in self.max_new_tokens or missing:
            raise CheckpointError(
                f"checkpoint {self.identity} is a {self.role}, not a {role}; "
                f"name another one in `checkpoint.{role}` of the profile"
            )


def read_manifest(folder: Path) -> Manifest:
    """Raises `CheckpointError` if there is no such folder, or no valid manifest in it."""
    if not folder.is_dir():
        raise CheckpointError(f"no such checkpoint folder: {folder}")
    path = folder / MANIFEST_FILE
    if not path.is_file():
        raise CheckpointError(f"{folder} is not a checkpoint: there is no {MANIFEST_FILE} in it")
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CheckpointError(f"{path}: {first_problem(error)}") from error


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


def resolve(reference: str, role: AgentRole, home: Home) -> Path:
    """The folder of `promoted`, of `name@version`, or of a path.

    Raises:
        CheckpointError: none was promoted yet, or there is none of that name and version.
    """
    if reference == PROMOTED:
        reference = promoted(home).get(role, "")
        if not reference:
            raise CheckpointError(
                f"no {role} was promoted yet in {home.root}; train one with `interleave run`, or "
                "promote one that `interleave checkpoints` lists: `interleave promote NAME VERSION`"
            )
    name, at, version = reference.rpartition("@")
    if at and "/" not in reference:
        return home.local / find_checkpoint(name, version, home).uri
    return Path(reference).expanduser()


def promoted(home: Home) -> dict[AgentRole, str]:
    """`name@version` of the promoted checkpoints of one moment; roles without one are left out."""
    names = [name for role_names in _NAMES_BY_ROLE.values() for name in role_names]
    in_use = versions_in_use(home, names)
    return {
        role: next(f"{name}@{in_use[name]}" for name in role_names if name in in_use)
        for role, role_names in _NAMES_BY_ROLE.items()
        if in_use.keys() & set(role_names)
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
