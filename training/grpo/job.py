"""The job of reinforcing a critic: what its driver needs to know."""

from pathlib import Path

from pydantic import Field

from inference.backends.factory import Backends
from inference.roles import Roles
from schemas.yaml_config import ConfigModel
from warehouse import Home

from ..launch import TrainerJob
from .settings import GrpoSettings


class RewardRoles(Backends):
    """The backends of a profile, of which rewards need the generator and the scorer."""

    def rewarding(self, home: Home) -> Roles:
        """Generator and scorer of the profile; no trained agent is loaded for a reward."""
        agents = {"planner": "sketch", "critic": "sketch"}
        roles = self.roles.model_copy(update=agents)
        return self.model_copy(update={"roles": roles}).build(home)


class GrpoJob(ConfigModel):
    """Payload of the driver."""

    parent: Path = Field(description="Checkpoint that is reinforced, in Hugging Face format")
    data: Path = Field(description="Folder of the export for verl")
    settings: GrpoSettings = Field(description="How")
    root: str = Field(description="Folder or URL of the lake, where the pictures are")
    players: RewardRoles = Field(description="Who draws and scores for the rewards")
    version: str = Field(description="Version of the checkpoint that is made; names its rollouts")


def grpo_job(
    name: str,
    folder: Path,
    parent: Path,
    data: Path,
    settings: GrpoSettings,
    root: str,
    players: RewardRoles,
    version: str,
) -> TrainerJob:
    """Reinforce the critic `parent` on the export for verl in `data`; `folder` is absolute."""
    payload = GrpoJob(
        parent=parent.absolute(),
        data=data.absolute(),
        settings=settings,
        root=root,
        players=players,
        version=version,
    )
    return TrainerJob(
        name=name,
        module="training.grpo.driver",
        folder=folder,
        payload=payload.model_dump(mode="json"),
        gpus=settings.gpus,
    )
