"""The backend `checkpoint`: planner and critic from Hugging Face checkpoints.

They are prompted as they were trained, in this process or at a server such as vLLM.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from pydantic import Field, field_validator

from schemas.trajectories import Role
from warehouse import EncodedImage, Home
from warehouse.storage import first_line

from ...agent_prompts.formatting import parse_plan, parse_verdict, read_verdict
from ...agent_prompts.templates import critic_prompt, planner_turn, prompts_of
from ...calls.hashing import stable_hash
from ...calls.retry import report_usage
from ...roles import Plan, PlanRequest, UnusableAnswerError, Verdict
from ...servers.instance import ServerInstance
from ...servers.settings import AgentServer, ServerSpec
from ..backend import Backends, BackendSettings, Finding, register
from ..model_files import BatchTokens, device_and_dtype
from ..openai.backend import OpenAISettings
from ..providers.agents import before_and_after
from ..providers.settings import AgentModel, EndpointSettings
from .constrained import FORM_TOKENS
from .encoding import AgentQuery, Decoding, PromptLayout, resize_to_pixels
from .manifest import (
    AgentRole,
    Answers,
    CheckpointError,
    PromptName,
    is_unpinned,
    read_manifest,
    resolve,
)
from .model import BatchedModel, LoadedModel, load_encoder, load_weights

_REFERENCE = (
    "`promoted`, `name@version` of the table `checkpoints`, a folder, or an id at Hugging Face "
    "(owner/name, owner/name@revision)"
)
_Answer = TypeVar("_Answer")


@register
class CheckpointBackend(BackendSettings):
    """Planner and critic from Hugging Face checkpoints, in this process or at a server."""

    backend = "checkpoint"
    summary = "Trained planner and critic, where `roles` names backend checkpoint"
    plays = ("planner", "critic")

    planner: str | None = Field("promoted", description=f"The planner: {_REFERENCE}")
    critic: str | None = Field("promoted", description=f"The critic: {_REFERENCE}")
    agent_prompts: dict[PromptName, str] = Field(
        {},
        description="Agent prompts of models that were not trained here, as the authors' released "
        "ones: critic, planner_text, planner_interleaved -> name or .jinja file; or a folder with "
        "such files",
    )
    in_process: bool = Field(
        False, description="They run in this process, also where `servers` has one for them"
    )
    device: str = Field(
        "auto", description="cpu, cuda, cuda:1, ...; auto: cuda where there is one (in bfloat16)"
    )
    batch: int = Field(64, ge=1, description="The most questions answered at once")
    batch_tokens: BatchTokens = 131_072

    @field_validator("agent_prompts", mode="before")
    @classmethod
    def _of_a_folder(cls, given: Any) -> Any:
        return prompts_of(given, get_args(PromptName))

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        agents = cast(Sequence[AgentRole], roles)
        if not any(backends.trained_server(role) for role in roles):
            return self.local_agents(agents, home)
        return {role: backends.agent(role, getattr(self, role) or "", home) for role in agents}

    def local_agents(self, roles: Sequence[AgentRole], home: Home) -> "dict[str, CheckpointAgent]":
        """Agents in this process, by role; two with one checkpoint share its batches and weights.

        Raises CheckpointError where there is no usable checkpoint for a role.
        """
        folders = {role: self._folder(role, home) for role in roles}
        models = {folder: CheckpointModel(folder, self) for folder in set(folders.values())}
        return {role: AGENTS[role](models[folder]) for role, folder in folders.items()}

    def _folder(self, role: AgentRole, home: Home) -> Path:
        reference = getattr(self, role)
        if reference is None:
            raise CheckpointError(
                f"the profile gives the {role} to backend checkpoint, but `checkpoint.{role}` is "
                "null; name a checkpoint there, or another backend under `roles`"
            )
        return resolve(reference, role, home)

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        for role in get_args(AgentRole):
            if getattr(backends.roles, role) == self.backend:
                reference = getattr(self, role)
                find = partial(resolve, reference, role, home, download=False)
                note = ", not pinned: name a commit as OWNER/NAME@COMMIT" * is_unpinned(reference)
                yield Finding.resolved(f"{role} checkpoint: {reference}{note}", find)


class CheckpointModel(BatchedModel):
    """The model in a checkpoint's folder; a process caches the weights of the last two.

    Raises `CheckpointError`: the folder is no checkpoint; for a query: transformers cannot load it.
    """

    def __init__(self, folder: Path, settings: CheckpointBackend | None = None) -> None:
        settings = settings or CheckpointBackend()
        self.manifest = read_manifest(folder, settings.agent_prompts)
        manifest, folder = self.manifest, folder.absolute()
        load = partial(_load, folder, manifest.identity, settings.device, manifest.pixels)
        super().__init__(load, settings.batch, settings.batch_tokens)


@lru_cache(maxsize=2)  # a planner and a critic
def _load(folder: Path, identity: str, device: str, pixels: tuple[int, int, int]) -> LoadedModel:
    device, dtype = device_and_dtype(device)
    least, most, most_of_many = pixels
    resize = partial(resize_to_pixels, least=least, most=most)
    resize_many = partial(resize_to_pixels, least=least, most=most_of_many)
    try:
        encoder = load_encoder(folder, None, PromptLayout(), resize, resize_many)
        return LoadedModel(identity, encoder, load_weights(folder, dtype=dtype).to(device).eval())
    except Exception as error:  # transformers, safetensors and torch raise errors of all kinds
        problem = f"checkpoint {folder} cannot be loaded: {first_line(error)}"
        raise CheckpointError(problem) from error


class CheckpointAgent:
    """A role that a checkpoint plays.

    `answers`: how it writes them; other than usual, its name says so. Raises `CheckpointError`: it
    was not trained for the role.
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

        `draw`: another number seeds sampled answers otherwise. Raises `UnusableAnswerError`: of
        `parse_second`, or the question is too long.
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
        images = before_and_after(before, after)
        return await self._ask(text, images, read_verdict, parse_verdict)


AGENTS: Mapping[AgentRole, type[CheckpointAgent]] = {
    "planner": CheckpointPlanner,
    "critic": CheckpointCritic,
}


def served_agent(
    role: AgentRole, reference: str, backends: Backends, home: Home, answers: Answers
) -> Any:
    """An agent at the server of a profile that has its role, which the first call starts.

    Raises `CheckpointError`: there is no such checkpoint, or it was not trained for the role.
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
    return OpenAISettings().agents({role: model}, {}, None, home, servers, "checkpoint")[role]
