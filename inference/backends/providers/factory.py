"""Builds the agents of a provider: adapter, endpoints, batch API and budget."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from schemas.trajectories import Role
from warehouse import Home

from ...generators import GeneratorPair
from ...roles import BackendError
from ...servers.instance import ServerInstance
from .agents import AGENTS
from .api import ApiSettings, ProviderSettings
from .batches import BatchClient, BatchStore
from .budget import SPENDING_FILE, Budget
from .chat import CompletionClient
from .endpoints import Endpoints
from .settings import BudgetSettings, EndpointSettings, Price, RemoteModel

_CALL_OVERHEAD_SECONDS = 60


def remote_agents(
    settings: ApiSettings,
    models: Mapping[Role, RemoteModel | None],
    prices: dict[str, Price],
    budget: BudgetSettings | None,
    home: Home,
    servers: Mapping[str, ServerInstance],
    name: str | None = None,
) -> Mapping[Role, Any]:
    """Agents of one provider by role; those with the same endpoints share a client.

    Args:
        prices: model -> its price; required for every model where there is a budget.
        home: holds the database of batches, and that of the budget.
        servers: those that endpoints may name.
        name: what the agents are called by; None: as the backend.

    Raises:
        BackendError: no model for a role, no price of a model, or a missing key.
    """
    known = prices if budget else None
    backend = settings.backend
    checked = {role: _check(backend, role, model, known) for role, model in models.items()}
    adapter = settings.adapter()
    store = BatchStore(home.local / "batches.sqlite")
    max_call_seconds = settings.timeout_seconds + _CALL_OVERHEAD_SECONDS
    path = home.local / SPENDING_FILE
    home_budget = Budget(path, budget.usd, max_call_seconds, budget.alerts) if budget else None

    @cache
    def client(*endpoints: EndpointSettings) -> CompletionClient:
        for endpoint in endpoints:
            endpoint.secret()  # fail before the first call if a key is missing
        batches = None
        if isinstance(settings, ProviderSettings):
            batches = BatchClient(adapter, endpoints[0], store, settings, servers)
        shared = Endpoints(endpoints, adapter.connect, adapter.close, servers)
        return CompletionClient(adapter, shared, prices, home_budget, batches)

    def agent(role: Role, model: RemoteModel) -> Any:
        shared = client(*settings.endpoints_of(model))
        called = name or backend
        built = settings.agent(role, called, shared, model, servers)
        built = built or AGENTS[role](called, shared, model)
        if edit := getattr(model, "edit", None):
            return GeneratorPair(built, agent(role, _check(backend, role, edit, known)))
        return built

    return {role: agent(role, model) for role, model in checked.items()}


def _check(
    backend: str, role: Role, model: RemoteModel | None, prices: Mapping[str, Price] | None
) -> RemoteModel:
    """The model; `prices` None: it needs none."""
    if model is None:
        raise BackendError(
            f"the profile gives the {role} to backend {backend}, but `{backend}.{role}` is "
            "null; name a model there, or another backend under `roles`"
        )
    if prices is not None and model.model not in prices:
        raise BackendError(
            f"the profile has a budget, but no price of {model.model}; add it under `prices` "
            "(0 where it is free)"
        )
    return model
