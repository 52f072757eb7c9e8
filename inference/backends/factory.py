"""Backends of a profile: their settings, and the agents that are built from them.

A new backend is a section of `Backends`, a name in the literals below and a case in
`Backends._agents`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Discriminator, Field, PositiveFloat, Tag, model_validator

from schemas.trajectories import LOOP_ROLES, Role
from schemas.yaml_config import ConfigModel, added_field
from warehouse import Home

from ..calls.ensemble import Ensemble, EnsembleSettings
from ..questions import Respondent
from ..roles import Generator, Roles
from ..servers.instance import ServerInstance
from ..servers.settings import AgentServer, Server, ServerSpec, misfit
from ..sketch_world.settings import SketchSettings
from .checkpoint.manifest import AgentRole, Answers, resolve
from .checkpoint.model import CheckpointSettings
from .diffusers.registry import DiffusersSettings
from .editscore.loading import EditScoreSettings
from .images.settings import ImagesSettings
from .providers.settings import (
    BudgetSettings,
    ChatModel,
    GeminiSettings,
    OpenAISettings,
    Price,
    RemoteModel,
)

AgentBackend = Literal["sketch", "checkpoint", "openai", "gemini"]
ScorerBackend = Literal["sketch", "editscore", "openai", "gemini", "ensemble"]
ChatBackend = Literal["openai", "gemini"]
RespondentRole = Literal["expander", "rubric_writer", "judge", "benchmark_judge"]
GeneratorBackend = Literal["sketch", "gemini", "images", "diffusers"]
GeneratorMix = Annotated[dict[GeneratorBackend, PositiveFloat], Field(min_length=2)]
GeneratorBinding = Annotated[  # told apart by their types, so that an error is about one of them
    Annotated[GeneratorBackend, Tag("backend")] | Annotated[GeneratorMix, Tag("mix")],
    Discriminator(lambda value: "mix" if isinstance(value, dict) else "backend"),
]
PROVIDERS = ("openai", "gemini", "images")


class RoleBindings(ConfigModel):
    """The backend of each role."""

    planner: AgentBackend = Field(description="Writes the steps of a plan")
    generator: GeneratorBinding = Field(
        description="Draws the pictures; or several with weights, such as {images: 2, gemini: 1}: "
        "each prompt of the bank is drawn by one of them, chosen by a hash, and everything else "
        "(requests, evaluations, benchmarks) by the first"
    )
    critic: AgentBackend = Field(description="Accepts a picture or rewrites its prompt")
    scorer: ScorerBackend = Field(description="Grades every attempt")

    @property
    def generators(self) -> tuple[GeneratorBackend, ...]:
        """The generator, or all members of a mix, the first one first."""
        return (self.generator,) if isinstance(self.generator, str) else tuple(self.generator)


class Backends(ConfigModel):
    """The backends of the four roles, and the settings of every backend."""

    roles: RoleBindings = Field(description="Backend of each role")
    sketch: SketchSettings = Field(
        default_factory=SketchSettings, description="The embedded world's rates and sizes"
    )
    checkpoint: CheckpointSettings = Field(
        default_factory=CheckpointSettings,
        description="Trained planner and critic, where `roles` names backend checkpoint",
    )
    openai: OpenAISettings = Field(
        default_factory=OpenAISettings,
        description="OpenAI, or an endpoint with its API, where `roles` names openai",
    )
    gemini: GeminiSettings = Field(
        default_factory=GeminiSettings, description="Google, where `roles` names gemini"
    )
    images: ImagesSettings = Field(
        default_factory=ImagesSettings,
        description="Endpoints of OpenAI's images API, where `roles` names images",
    )
    diffusers: DiffusersSettings = Field(
        default_factory=DiffusersSettings,
        description="A generator in this process, where `roles` names diffusers",
    )
    editscore: EditScoreSettings = Field(
        default_factory=EditScoreSettings,
        description="An open reward model in this process, where `roles` or `ensemble` names it",
    )
    ensemble: EnsembleSettings | None = Field(
        None, description="Scorers whose weighted mean counts, where `roles` names ensemble"
    )
    prices: dict[str, Price] = Field(
        default_factory=dict, description="Model -> its price; a model that is not in it has none"
    )
    budget: BudgetSettings | None = Field(None, description="null: no limit")
    servers: dict[str, Server] = added_field(
        {},
        description="Models that are served on this machine, or on the Ray cluster of "
        "`cluster.ray`: name -> model and GPUs",
    )

    @model_validator(mode="after")
    def _names_members(self) -> "Backends":
        if self.roles.scorer == "ensemble" and self.ensemble is None:
            raise ValueError(
                "roles.scorer is an ensemble: name its members and their weights, such as "
                "`ensemble: {members: {sketch: 1, openai: 2}}`"
            )
        return self

    @model_validator(mode="after")
    def _endpoints_fit_servers(self) -> "Backends":
        for backend, role, model in self._models():
            self.check_servers(f"{backend}.{role}", backend, model)
        return self

    def check_servers(self, path: str, backend: str, model: RemoteModel) -> None:
        """Raises ValueError unless the servers that a model's endpoints name can serve it."""
        for name in self.servers_named(backend, model):
            if name not in self.servers:
                known = ", ".join(self.servers) or "none"
                raise ValueError(f"{path}: no `servers.{name}`; there are: {known}")
            if problem := misfit(self.servers[name], backend, model.model):
                raise ValueError(f"{path}: server {name} {problem}")

    def build(self, home: Home) -> Roles:
        """Build the agents of the four roles.

        Raises:
            FoundryError: something that the profile names is missing, or settings are.
        """
        bound = sorted(self.bound.items())
        agents = {backend: self._agents(backend, roles, home) for backend, roles in bound}
        first = self.roles.model_copy(update={"generator": self.roles.generators[0]})
        by_role = {role: agents[name][role] for role, name in dict(first).items() if name in agents}
        if isinstance(mix := self.roles.generator, dict):
            by_role["mix"] = tuple((agents[name]["generator"], mix[name]) for name in mix)
        if self.ensemble and self.roles.scorer == "ensemble":
            weights = cast(dict[str, float], self.ensemble.members)
            scorers = {backend: agents[backend]["scorer"] for backend in weights}
            by_role["scorer"] = Ensemble(scorers, weights)
        return Roles(**by_role)

    def generator(self, backend: GeneratorBackend, home: Home) -> Generator:
        """Build the generator of a backend, whichever one `roles` names."""
        return cast(Generator, self._agents(backend, ["generator"], home)["generator"])

    def agent(self, role: AgentRole, reference: str, home: Home) -> Any:
        """A trained agent: at the server that `trained` names for the role, else in this process.

        Args:
            reference: `promoted`, `name@version`, a folder, or an id at Hugging Face.

        Raises:
            CheckpointError: there is no such checkpoint, or it was not trained for the role.
        """
        from .checkpoint.agents import checkpoint_agents

        if self.trained_server(role):
            return self.served_agent(role, reference, home)
        settings = self.checkpoint.model_copy(update={role: reference})
        return checkpoint_agents([role], settings, home)[role]

    def served_agent(
        self, role: AgentRole, reference: str, home: Home, answers: Answers = "usual"
    ) -> Any:
        """`agent` where a server has the role, with answers of any kind."""
        from .checkpoint.served import served_agent

        name = self.trained_server(role)
        assert name is not None
        server = cast(AgentServer, self.servers[name])
        folder = resolve(reference, role, home)
        prompts = self.checkpoint.agent_prompts
        return served_agent(role, folder, name, server, home, prompts, answers)

    def hosted_agent(self, role: AgentRole, backend: ChatBackend, home: Home) -> Any:
        """The planner or critic of a provider's section, whichever backend `roles` names.

        Raises:
            BackendError: the section has none, a key is missing, or a budget but no price of it.
        """
        return self._agents(backend, [role], home)[role]

    def trained_server(self, role: Role) -> str | None:
        """Name of the server of trained agents of a role; None: they run in this process."""
        if self.checkpoint.in_process:
            return None
        for name, server in self.servers.items():
            if isinstance(server, AgentServer) and server.trained == role:
                return name
        return None

    def servers_of(self, role: Role, backends: Collection[str] = ()) -> set[str]:
        """Names of the servers that calls of a role need.

        Args:
            backends: that play the role; none: those of `roles`.
        """
        playing = backends or [name for name, roles in self.bound.items() if role in roles]
        return {
            name
            for backend, played, model in self._models()
            if played == role and backend in playing
            for name in self.servers_named(backend, model)
        }

    def _models(self) -> Iterator[tuple[str, Role, RemoteModel]]:
        """Provider, role and model, also where `roles` names another backend."""
        for backend in PROVIDERS:
            for role in LOOP_ROLES:
                if model := getattr(getattr(self, backend), role, None):
                    yield backend, role, model
        if self.images.generator and self.images.generator.edit:
            yield "images", "generator", self.images.generator.edit

    def servers_named(self, backend: str, model: RemoteModel) -> list[str]:
        """Names of the servers among the endpoints of a provider's model."""
        endpoints = getattr(self, backend).endpoints_of(model)
        return [endpoint.server for endpoint in endpoints if endpoint.server]

    @property
    def bound(self) -> dict[str, list[Role]]:
        """Backends in use -> their roles; members of an ensemble are scorers, those of a mix
        generators."""
        bound: dict[str, list[Role]] = {}
        for role in LOOP_ROLES:
            backends: Sequence[str] = [getattr(self.roles, role)]
            if role == "generator":
                backends = self.roles.generators
            if backends == ["ensemble"] and self.ensemble:
                backends = list(self.ensemble.members)
            for backend in backends:
                bound.setdefault(backend, []).append(role)
        return bound

    def respondent(
        self, role: RespondentRole, home: Home, backend: ChatBackend, model: ChatModel
    ) -> Respondent:
        """Build a model that answers questions beside the loop, at a provider's endpoints.

        Raises:
            BackendError: a key is missing, or there is a budget but no price of the model.
        """
        return cast(Respondent, self._remote_agents(backend, {role: model}, home)[role])

    def _agents(self, backend: str, roles: Sequence[Role], home: Home) -> Mapping[Any, Any]:
        """A backend's agents by role. It is imported here: torch, diffusers and SDKs are heavy."""
        match backend:
            case "sketch":
                from .sketch import agents

                return {
                    "planner": agents.SketchPlanner(),
                    "generator": agents.SketchGenerator(self.sketch),
                    "critic": agents.SketchCritic(self.sketch),
                    "scorer": agents.SketchScorer(self.sketch),
                }
            case "checkpoint":
                from .checkpoint.agents import checkpoint_agents

                if not any(self.trained_server(role) for role in roles):
                    return checkpoint_agents(cast(Any, roles), self.checkpoint, home)
                references = {role: getattr(self.checkpoint, role) or "" for role in roles}
                return {role: self.agent(cast(Any, role), references[role], home) for role in roles}
            case "editscore":
                from .editscore.scorer import EditScoreScorer

                return {"scorer": EditScoreScorer(self.editscore)}
            case "diffusers":
                from .diffusers.pipeline_runner import diffusers_generator

                return {"generator": diffusers_generator(self.diffusers)}
        settings = getattr(self, backend)
        models = {role: getattr(settings, role, None) for role in roles}
        return self._remote_agents(backend, models, home)

    def _remote_agents(
        self, provider: Any, models: Mapping[Role, RemoteModel | None], home: Home
    ) -> Mapping[Role, Any]:
        from .providers.factory import remote_agents

        settings = getattr(self, provider)
        specs = {
            name: ServerSpec(name=name, model=server.model, root=home.root, settings=server)
            for name, server in self.servers.items()
            if server.model
        }
        servers = {name: ServerInstance.of(spec, home) for name, spec in specs.items()}
        return remote_agents(provider, settings, models, self.prices, self.budget, home, servers)
