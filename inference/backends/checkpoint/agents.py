"""Planner and critic played by a checkpoint; see `inference/roles.py`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warehouse import EncodedImage, Home

from ...agent_prompts.formatting import parse_plan, parse_verdict
from ...agent_prompts.templates import critic_prompt, planner_turn
from ...roles import Plan, PlanRequest, Verdict
from .encoding import AgentQuery
from .manifest import AgentRole, CheckpointError, resolve
from .model import CheckpointModel, CheckpointSettings


class CheckpointAgent:
    """A role that a checkpoint plays.

    Raises:
        CheckpointError: it was not trained for the role.
    """

    backend = "checkpoint"
    role: AgentRole

    def __init__(self, checkpoint: CheckpointModel) -> None:
        manifest = checkpoint.manifest
        manifest.check_role(self.role)
        self._checkpoint, self.model = checkpoint, manifest.identity
        self._prompts = manifest.agent_prompts
        self._max_new_tokens = manifest.max_new_tokens[self.role]

    def load(self) -> None:
        """Load the weights now rather than for the first query."""
        _ = self._checkpoint.loaded

    async def _answer(self, text: str, images: tuple[EncodedImage, ...]) -> str:
        query = AgentQuery(text, images, self._max_new_tokens)
        return (await self._checkpoint.complete(query)).text


class CheckpointPlanner(CheckpointAgent):
    role = "planner"

    async def plan(self, request: PlanRequest) -> Plan:
        names = self._prompts["planner_text"], self._prompts["planner_interleaved"]
        prompt = planner_turn(request, *names)
        return parse_plan(await self._answer(prompt.text, request.images))


class CheckpointCritic(CheckpointAgent):
    """An unreadable answer is a rejection: see `parse_verdict`."""

    role = "critic"

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        text = critic_prompt(instruction, prompt, self._prompts["critic"]).text
        images = (before or EncodedImage.white(after.image.size), after)
        return parse_verdict(await self._answer(text, images))


def checkpoint_agents(
    roles: Sequence[AgentRole], settings: CheckpointSettings, home: Home
) -> dict[str, CheckpointPlanner | CheckpointCritic]:
    """Agents by role; two roles with one checkpoint share its batches and weights.

    Raises:
        CheckpointError: the settings name no usable checkpoint for a role.
    """
    agents: dict[AgentRole, Any] = {"planner": CheckpointPlanner, "critic": CheckpointCritic}
    folders = {role: _folder(role, settings, home) for role in roles}
    models = {folder: CheckpointModel(folder, settings) for folder in set(folders.values())}
    return {role: agents[role](models[folder]) for role, folder in folders.items()}


def _folder(role: AgentRole, settings: CheckpointSettings, home: Home) -> Path:
    reference = settings.planner if role == "planner" else settings.critic
    if reference is None:
        raise CheckpointError(
            f"the profile gives the {role} to backend checkpoint, but `checkpoint.{role}` is "
            "null; name a checkpoint there, or another backend under `roles`"
        )
    return resolve(reference, role, home)
