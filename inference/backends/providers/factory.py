"""Builds the agents of a provider: adapter, endpoints, batch API and budget."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from schemas.trajectories import Role
from warehouse import Home

from ...generators import GeneratorPair
from ...roles import BackendError
from ...servers.instance import ServerInstance
from ..gemini.adapter import GeminiAdapter
from ..images.generator import ImagesAdapter, ImagesGenerator
from ..images.settings import ImagesGeneratorModel, ImagesSettings
from ..openai.adapter import OpenAIAdapter
from .agents import (
    RemoteCritic,
    RemoteGenerator,
    RemotePlanner,
    RemoteRespondent,
    RemoteTextRespondent,
    remote_scorer,
)
from .batches import BatchClient, BatchStore
from .budget import SPENDING_FILE, Budget
from .chat import CompletionClient
from .endpoints import Endpoints
from .settings import BudgetSettings, EndpointSettings, Price, ProviderSettings, RemoteModel

Provider = Literal["openai", "gemini", "images"]

_ADAPTERS: dict[Provider, Any] = {
    "openai": OpenAIAdapter,
    "gemini": GeminiAdapter,
    "images": ImagesAdapter,
}
_AGENTS: dict[Role, Any] = {
    "planner": RemotePlanner,
    "generator": RemoteGenerator,
    "critic": RemoteCritic,
    "scorer": remote_scorer,
    "expander": RemoteRespondent,
    "rubric_writer": RemoteRespondent,
    "judge": RemoteRespondent,
    "benchmark_judge": RemoteTextRespondent,
}
_CALL_OVERHEAD_SECONDS = 60


def remote_agents(
    provider: Provider,
    settings: ProviderSettings | ImagesSettings,
    models: Mapping[Role, RemoteModel | None],
    prices: dict[str, Price],
    budget: BudgetSettings | None,
    home: Home,
    servers: Mapping[str, ServerInstance],
    backend: str | None = None,
) -> Mapping[Role, Any]:
    """Agents of one provider by role; those with the same endpoints share a client.

    Args:
        prices: model -> its price; required for every model where there is a budget.
        home: holds the database of batches, and that of the budget.
        servers: those that endpoints may name.
        backend: what the agents are called by; None: as the provider.

    Raises:
        BackendError: no model for a role, no price of a model, or a missing key.
    """
    known = prices if budget else None
    checked = {role: _check(provider, role, model, known) for role, model in models.items()}
    adapter = _ADAPTERS[provider](settings.timeout_seconds)
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
        endpoints, name = settings.endpoints_of(model), backend or provider
        if not isinstance(model, ImagesGeneratorModel):
            return _AGENTS[role](name, client(*endpoints), model)
        known_servers = {each: server.spec.settings for each, server in servers.items()}
        drawer = ImagesGenerator(name, client(*endpoints), model, endpoints, known_servers)
        if model.edit is None:
            return drawer
        return GeneratorPair(drawer, agent(role, _check(provider, role, model.edit, known)))

    return {role: agent(role, model) for role, model in checked.items()}


def _check(
    provider: Provider, role: Role, model: RemoteModel | None, prices: Mapping[str, Price] | None
) -> RemoteModel:
    """The model; `prices` None: it needs none."""
    if model is None:
        raise BackendError(
            f"the profile gives the {role} to backend {provider}, but `{provider}.{role}` is "
            "null; name a model there, or another backend under `roles`"
        )
    if prices is not None and model.model not in prices:
        raise BackendError(
            f"the profile has a budget, but no price of {model.model}; add it under `prices` "
            "(0 where it is free)"
        )
    return model
