"""A checkpoint's manifest, `interleave.json`: how its model is prompted."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from schemas import FoundryError
from schemas.errors import first_problem

MANIFEST_FILE = "interleave.json"

AgentRole = Literal["planner", "critic"]


class CheckpointError(FoundryError):
    """A checkpoint that does not exist, is damaged, or does not fit its use."""


class Manifest(BaseModel):
    """What the prompts of a checkpoint depend on, as it was trained."""

    model_config = ConfigDict(frozen=True)

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
    """The manifest in a checkpoint's folder.

    Raises:
        CheckpointError: no such folder, no manifest in it, or an invalid one.
    """
    if not folder.is_dir():
        raise CheckpointError(f"no such checkpoint folder: {folder}")
    path = folder / MANIFEST_FILE
    if not path.is_file():
        raise CheckpointError(f"{folder} is not a checkpoint: there is no {MANIFEST_FILE} in it")
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CheckpointError(f"{path}: {first_problem(error)}") from error
