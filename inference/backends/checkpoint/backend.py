"""The backend `checkpoint`: planner and critic from Hugging Face checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast, get_args

from pydantic import Field, field_validator

from schemas.trajectories import Role
from schemas.yaml_config import added_field
from warehouse import Home

from ...agent_prompts.templates import prompts_of
from ..backend import Backends, BackendSettings, Finding, register
from ..model_files import BatchTokens
from .manifest import AgentRole, PromptName, is_unpinned, resolve

_REFERENCE = (
    "`promoted`, `name@version` of the table `checkpoints`, a folder, or an id at Hugging Face "
    "(owner/name, owner/name@revision)"
)


@register
class CheckpointSettings(BackendSettings):
    """Planner and critic from Hugging Face checkpoints, in this process or at a server."""

    backend = "checkpoint"
    summary = "Trained planner and critic, where `roles` names backend checkpoint"
    plays = ("planner", "critic")

    planner: str | None = Field("promoted", description=f"The planner: {_REFERENCE}")
    critic: str | None = Field("promoted", description=f"The critic: {_REFERENCE}")
    agent_prompts: dict[PromptName, str] = added_field(
        {},
        description="Agent prompts of models that were not trained here, as the authors' released "
        "ones: critic, planner_text, planner_interleaved -> name or .jinja file; or a folder with "
        "such files",
    )
    in_process: bool = added_field(
        False, description="They run in this process, also where `servers` has one for them"
    )
    device: str = Field(
        "auto", description="cpu, cuda, cuda:1, ...; auto: cuda where there is one (in bfloat16)"
    )
    batch: int = Field(64, ge=1, description="The most questions answered at once")
    batch_tokens: BatchTokens = 131_072
    gather_seconds: float = Field(
        0.005, ge=0, description="How long the first question of a batch waits for others"
    )

    @field_validator("agent_prompts", mode="before")
    @classmethod
    def _of_a_folder(cls, given: Any) -> Any:
        return prompts_of(given, get_args(PromptName))

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        from .agents import checkpoint_agents

        agents = cast(Sequence[AgentRole], roles)
        if not any(backends.trained_server(role) for role in roles):
            return checkpoint_agents(agents, self, home)
        return {role: backends.agent(role, getattr(self, role) or "", home) for role in agents}

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        roles: tuple[AgentRole, ...] = ("planner", "critic")
        for role in roles:
            if getattr(backends.roles, role) == self.backend:
                reference = getattr(self, role)
                find = partial(resolve, reference, role, home, download=False)
                note = ", not pinned: name a commit as OWNER/NAME@COMMIT" * is_unpinned(reference)
                yield Finding.resolved(f"{role} checkpoint: {reference}{note}", find)
