"""Planner and critic played by a checkpoint, in this process or at a server such as vLLM.

See `inference/roles.py`; they are prompted as they were trained.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from warehouse import EncodedImage, Home

from ...agent_prompts.formatting import parse_plan, parse_verdict, read_verdict
from ...agent_prompts.templates import critic_prompt, planner_turn
from ...calls.call_context import report_usage
from ...calls.hashing import stable_hash
from ...roles import Plan, PlanRequest, UnusableAnswerError, Verdict
from ...servers.instance import ServerInstance
from ...servers.settings import AgentServer, ServerSpec
from ..backend import Backends
from ..openai.backend import OpenAISettings
from ..providers.factory import remote_agents
from ..providers.settings import AgentModel, EndpointSettings
from .constrained import FORM_TOKENS
from .encoding import AgentQuery, Decoding
from .manifest import AgentRole, Answers, CheckpointError, read_manifest, resolve
from .model import CheckpointModel, CheckpointSettings

_Answer = TypeVar("_Answer")


class CheckpointAgent:
    """A role that a checkpoint plays.

    Args:
        answers: how it writes them; other than usual, its name says so.

    Raises:
        CheckpointError: it was not trained for the role.
    """

    backend = "checkpoint"
    role: AgentRole

    def __init__(self, checkpoint: CheckpointModel, answers: Answers = "usual") -> None:
        manifest = checkpoint.manifest
        manifest.check_role(self.role)
        self._checkpoint, self.model = checkpoint, manifest.identity
        self._prompts = manifest.agent_prompts
        self._repeats_first_prompt = manifest.repeats_first_prompt
        self._max_new_tokens = manifest.max_new_tokens[self.role]
        self._decoding: Decoding = "sampled" if answers == "sampled" else manifest.decoding
        self._form: AgentRole | None = None
        if answers != "usual":
            self.model = f"{manifest.identity}-{answers}"
        if answers == "constrained":
            self._form, self._max_new_tokens = self.role, FORM_TOKENS

    def load(self) -> None:
        """Load the weights now rather than for the first query."""
        _ = self._checkpoint.loaded

    async def _ask(
        self,
        text: str,
        images: tuple[EncodedImage, ...],
        parse: Callable[[str], _Answer],
        parse_second: Callable[[str], _Answer],
        draw: int = 0,
    ) -> _Answer:
        """What is parsed from the answer; an unreadable one is asked for once more, and sampled.

        Args:
            draw: another number seeds sampled answers otherwise.

        Raises:
            UnusableAnswerError: of `parse_second`, or the question is too long.
        """
        asked = (text, *(image.sha256 for image in images), *([draw] if draw else []))
        seed = int(stable_hash(*asked)[:8], 16)
        query = AgentQuery(text, images, self._max_new_tokens, seed, self._decoding, self._form)
        first = await self._checkpoint.complete(query)
        try:
            return parse(first.text)
        except UnusableAnswerError:
            report_usage(retries=1)
        again = replace(query, seed=seed + 1, decoding="sampled")
        return parse_second((await self._checkpoint.complete(again)).text)


class CheckpointPlanner(CheckpointAgent):
    role = "planner"

    async def plan(self, request: PlanRequest, draw: int = 0) -> Plan:
        names = self._prompts["planner_text"], self._prompts["planner_interleaved"]
        prompt = planner_turn(request, *names)
        return await self._ask(prompt.text, request.images, parse_plan, parse_plan, draw)


class CheckpointCritic(CheckpointAgent):
    """Two unreadable answers are a rejection: see `parse_verdict`."""

    role = "critic"

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        rewritten = prompt or (instruction if self._repeats_first_prompt else "")
        text = critic_prompt(instruction, rewritten, self._prompts["critic"]).text
        images = (before or EncodedImage.white(after.image.size), after)
        return await self._ask(text, images, read_verdict, parse_verdict)


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


def served_agent(
    role: AgentRole, reference: str, backends: Backends, home: Home, answers: Answers
) -> Any:
    """An agent at the server of a profile that has its role, which the first call starts.

    Raises:
        CheckpointError: there is no such checkpoint, or it was not trained for the role.
    """
    name = backends.trained_server(role)
    server: AgentServer = backends.servers[name]
    folder = resolve(reference, role, home)
    manifest = read_manifest(folder, backends.checkpoint.agent_prompts)
    manifest.check_role(role)
    spec = ServerSpec(
        name=name,
        model=str(folder.absolute()),
        root=home.root,
        settings=server,
        served_as=manifest.identity,
    )
    endpoint = EndpointSettings(server=name, concurrency=server.concurrency)
    fields = manifest.prompting(role, answers)
    model = AgentModel(model=manifest.identity, endpoints=[endpoint], **fields)
    servers = {name: ServerInstance.of(spec, home)}
    agents = remote_agents(OpenAISettings(), {role: model}, {}, None, home, servers, "checkpoint")
    return agents[role]
