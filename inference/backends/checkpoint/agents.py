"""Planner and critic played by a checkpoint."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from warehouse import EncodedImage, Home

from ...agent_prompts import critic_prompt, planner_turn
from ...agent_prompts.parsing import parse_plan, parse_verdict
from ...engine.batching import Batcher
from ...engine.usage import report_usage
from ...roles import Plan, PlanRequest, Verdict
from .checkpoint_refs import resolve
from .encoding import AgentQuery
from .manifest import AgentRole, CheckpointError, read_manifest
from .model import CheckpointModel, Completion, load_checkpoint_model
from .settings import CheckpointSettings


class BatchedCheckpoint:
    """Gathers the queries to one checkpoint into batches; loads its weights for the first."""

    def __init__(self, folder: Path, settings: CheckpointSettings) -> None:
        self.folder, self.manifest = folder, read_manifest(folder)
        self._settings = settings
        self._batcher: Batcher[AgentQuery, Completion] = Batcher(
            lambda queries, is_cancelled: self.model.attempt(queries, is_cancelled),
            settings.batch,
            settings.gather_seconds,
        )

    async def answer(self, query: AgentQuery) -> str:
        completion = await self._batcher.submit(query)
        report_usage(
            input_tokens=completion.input_tokens,
            output_tokens=completion.output_tokens,
            cost_usd=0.0,
        )
        return completion.text

    @cached_property
    def model(self) -> CheckpointModel:
        return load_checkpoint_model(self.folder, self._settings)


class CheckpointAgent:
    """A role that a checkpoint plays.

    Raises:
        CheckpointError: it was not trained for the role.
    """

    backend = "checkpoint"
    role: AgentRole

    def __init__(self, checkpoint: BatchedCheckpoint) -> None:
        checkpoint.manifest.check_role(self.role)
        self._checkpoint = checkpoint
        self._prompts = checkpoint.manifest.agent_prompts
        self._max_new_tokens = checkpoint.manifest.max_new_tokens[self.role]

    @property
    def model(self) -> str:
        return self._checkpoint.manifest.identity

    def load(self) -> None:
        """Load the weights now rather than for the first query."""
        _ = self._checkpoint.model

    async def _answer(self, text: str, images: tuple[EncodedImage, ...]) -> str:
        return await self._checkpoint.answer(AgentQuery(text, images, self._max_new_tokens))


class CheckpointPlanner(CheckpointAgent):
    """Plans requests; see `Planner` in `inference/roles.py`."""

    role: AgentRole = "planner"

    async def plan(self, request: PlanRequest) -> Plan:
        names = self._prompts["planner_text"], self._prompts["planner_interleaved"]
        prompt = planner_turn(request, *names)
        return parse_plan(await self._answer(prompt.text, request.images))


class CheckpointCritic(CheckpointAgent):
    """Judges attempts; see `Critic` in `inference/roles.py`.

    An unreadable answer is a rejection: see `parse_verdict`.
    """

    role: AgentRole = "critic"

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        if before is None:
            before = EncodedImage.white(after.image.size)
        text = critic_prompt(instruction, prompt, self._prompts["critic"]).text
        return parse_verdict(await self._answer(text, (before, after)))


_AGENTS: dict[AgentRole, type[CheckpointPlanner] | type[CheckpointCritic]] = {
    "planner": CheckpointPlanner,
    "critic": CheckpointCritic,
}


def checkpoint_agents(
    roles: Sequence[AgentRole], settings: CheckpointSettings, home: Home
) -> dict[str, CheckpointPlanner | CheckpointCritic]:
    """Agents by role; two roles with one checkpoint share its batches and weights.

    Raises:
        CheckpointError: the settings name no checkpoint for a role, or one that does not exist or
            was not trained for it.
    """
    folders = {role: _folder(role, settings, home) for role in roles}
    checkpoints = {folder: BatchedCheckpoint(folder, settings) for folder in set(folders.values())}
    return {role: _AGENTS[role](checkpoints[folder]) for role, folder in folders.items()}


def _folder(role: AgentRole, settings: CheckpointSettings, home: Home) -> Path:
    reference = settings.planner if role == "planner" else settings.critic
    if reference is None:
        raise CheckpointError(
            f"the profile gives the {role} to backend checkpoint, but `checkpoint.{role}` is "
            "null; name a checkpoint there, or another backend under `roles`"
        )
    return resolve(reference, role, home)
