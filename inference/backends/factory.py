"""Backends of a profile: their settings, and the agents that are built from them.

A new backend is a folder with a `backend.py` beside this file: see `backend.py`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PositiveFloat,
    Tag,
    create_model,
    model_validator,
)

from schemas import FoundryError
from schemas.trajectories import LOOP_ROLES, Role
from schemas.yaml_config import ConfigModel
from warehouse import Home

from ..calls.scoring import Ensemble, EnsembleSettings
from ..questions import Respondent
from ..roles import Roles
from ..servers.instance import ServerInstance
from ..servers.settings import AgentServer, Server, ServerSpec, misfit
from .backend import SECTIONS, BackendSettings, RespondentRole, backends_of, load_sections
from .checkpoint.backend import CheckpointBackend, served_agent
from .checkpoint.manifest import AgentRole, Answers
from .providers.api import ApiSettings
from .providers.settings import (
    BudgetSettings,
    ChatModel,
    EndpointSettings,
    JudgeModel,
    Price,
    RemoteModel,
)

load_sections()


def _plays(role: Role, *more: str) -> AfterValidator:
    """Accepts the names of backends that can play a role."""

    def check(name: str) -> str:
        names = (*backends_of(role), *more)
        if name not in names:
            raise ValueError(f"no backend {name} plays the {role}; there are: {', '.join(names)}")
        return name

    return AfterValidator(check)


AgentBackend = Annotated[str, _plays("planner")]
ScorerBackend = Annotated[str, _plays("scorer", "ensemble")]
ChatBackend = Annotated[str, _plays("judge")]
GeneratorBackend = Annotated[str, _plays("generator")]
GeneratorMix = Annotated[dict[GeneratorBackend, PositiveFloat], Field(min_length=2)]
GeneratorBinding = Annotated[  # told apart by their types, so that an error is about one of them
    Annotated[GeneratorBackend, Tag("backend")] | Annotated[GeneratorMix, Tag("mix")],
    Discriminator(lambda value: "mix" if isinstance(value, dict) else "backend"),
]


Section = TypeVar("Section", bound=BackendSettings)


class Judge(ConfigModel):
    """A model that grades plans and outcomes by rubrics, at the endpoints of a provider."""

    backend: ChatBackend = Field(description="Its backend, with endpoints and keys")
    model: JudgeModel = Field(description="Answers the criteria, for every plan and outcome")


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


class BackendsBase(ConfigModel):
    """The backends of the four roles; `Backends` has the section of every backend as well."""

    roles: RoleBindings = Field(description="Backend of each role")
    ensemble: EnsembleSettings | None = Field(
        None, description="Scorers whose weighted mean counts, where `roles` names ensemble"
    )
    prices: dict[str, Price] = Field(
        default_factory=dict, description="Model -> its price; a model that is not in it has none"
    )
    budget: BudgetSettings | None = Field(None, description="null: no limit")
    servers: dict[str, Server] = Field(
        {},
        description="Models that are served on this machine, or on the Ray cluster of "
        "`cluster.ray`: name -> model and GPUs",
    )

    @model_validator(mode="after")
    def _names_members(self) -> Self:
        if self.roles.scorer == "ensemble" and self.ensemble is None:
            raise ValueError(
                "roles.scorer is an ensemble: name its members and their weights, such as "
                "`ensemble: {members: {sketch: 1, openai: 2}}`"
            )
        scorers = backends_of("scorer")
        for name in self.ensemble.members if self.ensemble else ():
            if name not in scorers:
                raise ValueError(
                    f"ensemble.members: no scorer {name}; {', '.join(sorted(scorers))}"
                )
        return self

    @model_validator(mode="after")
    def _endpoints_fit_servers(self) -> Self:
        for backend, path, _, model in self._models():
            self.check_servers(f"{backend}.{path}", backend, model)
        return self

    def section(self, kind: type[Section]) -> Section:
        """The section of a backend, by its class."""
        section = self.section_of(kind.backend)
        assert isinstance(section, kind)
        return section

    def section_of(self, backend: str) -> BackendSettings | None:
        """The section of a backend, by its name; None: there is no such backend."""
        return getattr(self, backend) if backend in SECTIONS else None

    @property
    def apis(self) -> dict[str, ApiSettings]:
        """Sections of the backends behind endpoints, by name."""
        sections = {name: self.section_of(name) for name in SECTIONS}
        return {name: each for name, each in sections.items() if isinstance(each, ApiSettings)}

    def check_servers(self, path: str, backend: str, model: RemoteModel) -> None:
        """Raises ValueError unless the servers that a model's endpoints name can serve it."""
        for name in self.servers_named(backend, model):
            if name not in self.servers:
                known = ", ".join(self.servers) or "none"
                raise ValueError(f"{path}: no `servers.{name}`; there are: {known}")
            kinds = self.apis[backend].served_by
            if problem := misfit(self.servers[name], backend, kinds, model.model):
                raise ValueError(f"{path}: server {name} {problem}")

    def build(self, home: Home) -> Roles:
        """Build the agents of the four roles.

        Raises FoundryError where something that the profile names is missing, or settings are.
        """
        bound = sorted(self.bound.items())
        agents = {backend: self._agents(backend, roles, home) for backend, roles in bound}
        first = self.roles.model_copy(update={"generator": self.roles.generators[0]})
        by_role = {role: agents[name][role] for role, name in dict(first).items() if name in agents}
        if isinstance(mix := self.roles.generator, dict):
            by_role["mix"] = tuple((agents[name]["generator"], mix[name]) for name in mix)
        if self.ensemble and self.roles.scorer == "ensemble":
            weights = self.ensemble.members
            scorers = {backend: agents[backend]["scorer"] for backend in weights}
            by_role["scorer"] = Ensemble(scorers, weights)
        return Roles(**by_role)

    def of_backend(self, role: Role, backend: str, home: Home) -> Any:
        """The agent or generator of a backend's section, whichever backend `roles` names.

        Raises BackendError where it has none, a key is missing, or a price where there is a budget.
        """
        return self._agents(backend, [role], home)[role]

    def agent(self, role: AgentRole, reference: str, home: Home, answers: Answers = "usual") -> Any:
        """A trained agent: at the server that `trained` names for the role, else in this process.

        Args:
            reference: `promoted`, `name@version`, a folder, or an id at Hugging Face.
            answers: of a server.

        Raises CheckpointError where there is none, or it was not trained for the role.
        """
        if self.trained_server(role):
            return served_agent(role, reference, self, home, answers)
        settings = self.section(CheckpointBackend).model_copy(update={role: reference})
        return settings.local_agents([role], home)[role]

    def trained_server(self, role: Role) -> str | None:
        """Name of the server of trained agents of a role; None: they run in this process."""
        if self.section(CheckpointBackend).in_process:
            return None
        for name, server in self.servers.items():
            if isinstance(server, AgentServer) and server.trained == role:
                return name
        return None

    def servers_of(self, role: Role, backends: Collection[str] = ()) -> set[str]:
        """Names of the servers that calls of a role need.

        `backends`: that play the role; none: those of `roles`.
        """
        playing = backends or [name for name, roles in self.bound.items() if role in roles]
        return {
            name
            for backend, _, played, model in self._models()
            if played == role and backend in playing
            for name in self.servers_named(backend, model)
        }

    @property
    def is_hosted(self) -> bool:
        """Whether planner, generator and critic are at endpoints that are no `servers`, so that
        none of them waits for a GPU which another one holds."""
        return all(
            backend in self.apis and not self.servers_of(role, [backend])
            for backend, roles in self.bound.items()
            for role in roles
            if role != "scorer"
        )

    def _models(self) -> Iterator[tuple[str, str, Role, RemoteModel]]:
        """Backend, key, role and model behind endpoints, also where `roles` names another one."""
        for backend, section in self.apis.items():
            for path, role, model in section.models():
                yield backend, path, role, model

    def servers_named(self, backend: str, model: RemoteModel) -> list[str]:
        """Names of the servers among the endpoints of a provider's model."""
        endpoints = self.apis[backend].endpoints_of(model)
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

    def first_failure(self, names: Mapping[str, str], timeout_seconds: float) -> str | None:
        """Why agents cannot answer now, in one line; None: each has an endpoint that answers.

        `names`: role -> agent, as `qualified_name` writes it; one in this process always answers.
        """

        @cache  # roles share endpoints
        def problem(backend: str, endpoint: EndpointSettings) -> str | None:
            try:
                key = endpoint.secret()
            except FoundryError as error:
                return str(error)
            health = self.apis[backend].health(endpoint, key, timeout_seconds)
            return health.problem and f"{health.url}: {health.problem}"

        for role, name in names.items():
            backend = name.partition("/")[0]
            section = self.apis.get(backend)
            for _, played, model in section.models() if section else ():
                if section and played == role:
                    endpoints = section.endpoints_of(model)
                    # A server of ours is started by the first call.
                    problems = [None if one.server else problem(backend, one) for one in endpoints]
                    if all(problems):
                        return f"{role}: {problems[0]}"
        return None

    def respondent(
        self, role: RespondentRole, home: Home, backend: ChatBackend, model: ChatModel
    ) -> Respondent:
        """Build a model that answers questions beside the loop, at a provider's endpoints.

        Raises BackendError where a key is missing, or a price where there is a budget.
        """
        return cast(Respondent, self.remote_agents(self.apis[backend], {role: model}, home)[role])

    def _agents(self, backend: str, roles: Sequence[Role], home: Home) -> Mapping[Any, Any]:
        section = self.section_of(backend)
        assert section is not None
        return section.build(roles, self, home)

    def remote_agents(
        self, section: ApiSettings, models: Mapping[Role, RemoteModel | None], home: Home
    ) -> Mapping[Any, Any]:
        """Agents of models at the endpoints of a backend, within the budget."""
        servers = {}
        for name, server in self.servers.items():
            if server.model:
                spec = ServerSpec(name=name, model=server.model, root=home.root, settings=server)
                servers[name] = ServerInstance.of(spec, home)
        return section.agents(models, self.prices, self.budget, home, servers)


if TYPE_CHECKING:
    Backends = BackendsBase
else:
    Backends = create_model(
        "Backends",
        __base__=BackendsBase,
        __doc__="The backends of the four roles, and the settings of every backend.",
        **{
            name: (section, Field(default_factory=section, description=section.summary))
            for name, section in SECTIONS.items()
        },
    )
