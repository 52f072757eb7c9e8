"""The backend `checkpoint`: planner and critic from Hugging Face checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from schemas.trajectories import Role
from warehouse import Home

from ..backend import Backends, BackendSettings, Finding, register
from .manifest import AgentRole, is_unpinned, resolve
from .model import CheckpointSettings


@register
class CheckpointBackend(CheckpointSettings, BackendSettings):
    """Planner and critic from Hugging Face checkpoints, in this process or at a server."""

    backend = "checkpoint"
    summary = "Trained planner and critic, where `roles` names backend checkpoint"
    plays = ("planner", "critic")

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
