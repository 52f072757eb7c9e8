"""What a backend behind endpoints says of itself, and its agents: endpoints, batch API, budget."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pydantic import Field, model_validator

from schemas.trajectories import LOOP_ROLES, Role
from warehouse import Home

from ...generators import GeneratorPair
from ...roles import BackendError
from ...servers.instance import ServerInstance
from ..backend import Backends, BackendSettings
from .agents import AGENTS
from .batches import BatchClient, BatchStore
from .budget import SPENDING_FILE, Budget
from .chat import CompletionClient
from .endpoints import Endpoints
from .settings import AgentModel, BudgetSettings, EndpointSettings, Price, RemoteModel, ScorerModel

_REJECTED_KEY = (401, 403)
_CALL_OVERHEAD_SECONDS = 60
Servers = Mapping[str, ServerInstance]


def endpoints_field(**default: Any) -> Any:
    """Field `endpoints` of a section, with one endpoint as its default."""
    description = "Where calls go; each gets as many as it has free slots"
    return Field([EndpointSettings(**default)], min_length=1, description=description)


class Api(NamedTuple):
    """How an API lists its models: the provider's own URL, their path, a key's header and what
    comes before it."""

    url: str
    models: str
    header: str
    prefix: str


@dataclass(frozen=True)
class EndpointHealth:
    """The result of a check. `problem`: what is wrong and what to do; None: nothing."""

    url: str
    is_reachable: bool = True
    problem: str | None = None


class ApiSettings(BackendSettings):
    """A backend behind endpoints, which share the calls of its models.

    Attributes:
        package: that the adapter needs.
        served_by: kinds of `servers` that can serve its models.
    """

    package: ClassVar[str]
    served_by: ClassVar[tuple[str, ...]] = ()
    api: ClassVar[Api] = Api("https://api.openai.com/v1", "/models", "Authorization", "Bearer ")

    endpoints: list[EndpointSettings] = endpoints_field()
    timeout_seconds: float = Field(180, gt=0, description="Of one request")

    def endpoints_of(self, model: RemoteModel | None) -> list[EndpointSettings]:
        """The endpoints of a model: its own, else the provider's."""
        return (model and model.endpoints) or self.endpoints

    def model_of(self, role: Role) -> RemoteModel | None:
        return getattr(self, role, None)

    def models(self) -> Iterator[tuple[str, Role, RemoteModel]]:
        """Key below the section, role and settings of every model that it names."""
        for role in LOOP_ROLES:
            if model := self.model_of(role):
                yield role, role, model

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        return backends.remote_agents(self, {role: self.model_of(role) for role in roles}, home)

    def health(
        self, endpoint: EndpointSettings, key: str | None, timeout_seconds: float
    ) -> EndpointHealth:
        """Whether an endpoint lists its models for a key, which costs nothing."""
        own_url, path, header, prefix = self.api
        url = f"{(endpoint.url or own_url).rstrip('/')}{path}"
        request = Request(url, headers={header: f"{prefix}{key}"} if key else {})
        try:
            with urlopen(request, timeout=timeout_seconds):
                return EndpointHealth(url)
        except HTTPError as error:
            is_rejected = error.code in _REJECTED_KEY and key is not None
            problem = f"it rejects the key in {endpoint.key}: {error.code}" if is_rejected else None
            return EndpointHealth(url, problem=problem)
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            problem = f"no answer ({reason}): start it, or correct `{self.backend}.endpoints`"
            return EndpointHealth(url, is_reachable=False, problem=problem)

    def adapter(self) -> Any:
        """The `Adapter` of its SDK."""
        raise NotImplementedError

    def agent(self, role: Role, name: str, client: Any, model: Any, servers: Servers) -> Any:
        """An agent of a role, called `name` in the ledger.

        `client`: a `CompletionClient`. `servers`: the profile's, by name.
        """
        return AGENTS[role](name, client, model)

    def batch_client(self, endpoint: EndpointSettings, home: Home, servers: Servers) -> Any:
        """The client of its batch API; None: it has none."""
        return None

    def agents(
        self,
        models: Mapping[Role, RemoteModel | None],
        prices: dict[str, Price],
        budget: BudgetSettings | None,
        home: Home,
        servers: Servers,
        name: str | None = None,
    ) -> Mapping[Role, Any]:
        """Agents by role; those with the same endpoints share a client.

        Args:
            prices: model -> its price; required for every model where there is a budget.
            home: holds the database of batches, and that of the budget.
            servers: those that endpoints may name.
            name: what the agents are called by; None: as the backend.

        Raises BackendError where a model of a role, a price of a model, or a key is missing.
        """
        known = prices if budget else None
        checked = {role: self._check(role, model, known) for role, model in models.items()}
        adapter, seconds = self.adapter(), self.timeout_seconds + _CALL_OVERHEAD_SECONDS
        path = home.local / SPENDING_FILE
        home_budget = Budget(path, budget.usd, seconds, budget.alerts) if budget else None

        @cache
        def client(*endpoints: EndpointSettings) -> CompletionClient:
            for endpoint in endpoints:
                endpoint.secret()  # fail before the first call if a key is missing
            batches = self.batch_client(endpoints[0], home, servers)
            shared = Endpoints(endpoints, adapter.connect, adapter.close, servers)
            return CompletionClient(adapter, shared, prices, home_budget, batches)

        def agent(role: Role, model: RemoteModel) -> Any:
            shared = client(*self.endpoints_of(model))
            built = self.agent(role, name or self.backend, shared, model, servers)
            if edit := getattr(model, "edit", None):
                return GeneratorPair(built, agent(role, self._check(role, edit, known)))
            return built

        return {role: agent(role, model) for role, model in checked.items()}

    def _check(
        self, role: Role, model: RemoteModel | None, prices: Mapping[str, Price] | None
    ) -> RemoteModel:
        """The model; `prices` None: it needs none."""
        if model is None:
            raise BackendError(
                f"the profile gives the {role} to backend {self.backend}, but "
                f"`{self.backend}.{role}` is null; name a model there, or another backend under "
                "`roles`"
            )
        if prices is not None and model.model not in prices:
            raise BackendError(
                f"the profile has a budget, but no price of {model.model}; add it under `prices` "
                "(0 where it is free)"
            )
        return model


class ProviderSettings(ApiSettings):
    """A provider: its endpoints, and which of its models play which roles."""

    gather_seconds: float = Field(
        5, gt=0, description="A batch is submitted when no request has come for so long"
    )
    poll_seconds: float = Field(60, gt=0, description="Between two polls of a batch")
    planner: AgentModel | None = Field(None, description="The planner")
    critic: AgentModel | None = Field(None, description="The critic")
    scorer: ScorerModel | None = Field(None, description="The scorer")

    def batch_client(self, endpoint: EndpointSettings, home: Home, servers: Servers) -> BatchClient:
        store, pace = BatchStore(home.local / "batches.sqlite"), self.gather_seconds
        adapter = self.adapter()
        return BatchClient(adapter, endpoint, store, pace, self.poll_seconds, servers)

    @model_validator(mode="after")
    def _check_roles(self) -> "ProviderSettings":
        if self.critic and self.critic.batch:
            raise ValueError("critic.batch: the loop waits for every verdict; leave it false")
        if self.scorer and self.scorer.form == "tags":
            raise ValueError("scorer.form: no trained agent scores in tags; use schema")
        return self
