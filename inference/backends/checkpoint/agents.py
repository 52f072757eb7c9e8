"""Planner and critic that ask a checkpoint."""

from collections.abc import Callable, Sequence
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
    """Where the questions to one checkpoint come in; its weights are loaded for the first."""

    def __init__(self, folder: Path, settings: CheckpointSettings) -> None:
        self.folder, self.manifest = folder, read_manifest(folder)
        self._settings = settings
        self._batcher = Batcher(self._work, settings.batch, settings.gather_seconds)

    def load(self) -> None:
        """Load the weights now rather than for the first question."""
        _ = self._agent

    async def ask(self, question: AgentQuery) -> str:
        answer = await self._batcher.ask(question)
        report_usage(
            input_tokens=answer.input_tokens, output_tokens=answer.output_tokens, cost_usd=0.0
        )
        return answer.text

    @cached_property
    def _agent(self) -> CheckpointModel:
        return load_checkpoint_model(self.folder, self._settings)

    def _work(
        self, questions: Sequence[AgentQuery], given_up: Callable[[], bool]
    ) -> Sequence[Completion | Exception]:
        return self._agent.attempt(questions, given_up)


class CheckpointAgent:
    """A role that one checkpoint plays."""

    backend = "checkpoint"
    role: AgentRole

    def __init__(self, desk: BatchedCheckpoint) -> None:
        desk.manifest.check_plays(self.role)
        self._desk = desk
        self._prompts = desk.manifest.agent_prompts
        self._limit = desk.manifest.max_new_tokens[self.role]

    @property
    def model(self) -> str:
        return self._desk.manifest.identity

    def load(self) -> None:
        """See `BatchedCheckpoint.load`."""
        self._desk.load()

    async def _ask(self, text: str, pictures: tuple[EncodedImage, ...]) -> str:
        return await self._desk.ask(AgentQuery(text, pictures, self._limit))


class CheckpointPlanner(CheckpointAgent):
    """Plans requests; see `Planner` in `inference/roles.py`."""

    role: AgentRole = "planner"

    async def plan(self, request: PlanRequest) -> Plan:
        names = self._prompts["planner_text"], self._prompts["planner_interleaved"]
        question = planner_turn(request, *names)
        return parse_plan(await self._ask(question.text, request.images))


class CheckpointCritic(CheckpointAgent):
    """Judges attempts; see `Critic` in `inference/roles.py`. Never refuses: see `parse_verdict`."""

    role: AgentRole = "critic"

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        if before is None:
            before = EncodedImage.white(after.image.size)
        question = critic_prompt(instruction, prompt, self._prompts["critic"])
        return parse_verdict(await self._ask(question.text, (before, after)))


_PLAYERS: dict[AgentRole, type[CheckpointPlanner] | type[CheckpointCritic]] = {
    "planner": CheckpointPlanner,
    "critic": CheckpointCritic,
}


def checkpoint_agents(
    roles: Sequence[AgentRole], settings: CheckpointSettings, home: Home
) -> dict[str, CheckpointPlanner | CheckpointCritic]:
    """Who plays each role; two roles with one checkpoint ask at one desk.

    Raises:
        CheckpointError: the settings name no checkpoint for a role, or one that is not there or
            was not trained for it.
    """
    folders = {role: _folder(role, settings, home) for role in roles}
    desks = {folder: BatchedCheckpoint(folder, settings) for folder in set(folders.values())}
    return {role: _PLAYERS[role](desks[folder]) for role, folder in folders.items()}


def _folder(role: AgentRole, settings: CheckpointSettings, home: Home) -> Path:
    reference = settings.planner if role == "planner" else settings.critic
    if reference is None:
        raise CheckpointError(
            f"the profile gives the {role} to backend checkpoint, but `checkpoint.{role}` is "
            "null; name a checkpoint there, or another backend under `roles`"
        )
    return resolve(reference, role, home)
