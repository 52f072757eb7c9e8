"""Builds the agents of a provider: adapter, endpoints, batch API and budget."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from importlib import import_module
from typing import Any, Literal, cast

from schemas.trajectories import Role
from warehouse import Home

from ...roles import BackendError
from ...vocabulary_protocol import Expander
from .agents import RemoteCritic, RemoteExpander, RemotePlanner, RemoteScorer
from .batches import BatchClient, BatchStore
from .budget import Budget
from .chat import CompletionClient
from .endpoints import Endpoints
from .generator import RemoteGenerator
from .settings import (
    BudgetSettings,
    EndpointSettings,
    ExpanderModel,
    ImagesSettings,
    Price,
    ProviderSettings,
    RemoteModel,
)

Provider = Literal["openai", "gemini", "images"]

# Module and class, imported when a profile uses the provider: their SDKs take a second.
_ADAPTERS: dict[Provider, tuple[str, str]] = {
    "openai": ("inference.backends.openai.chat", "OpenAIChat"),
    "gemini": ("inference.backends.gemini.chat", "GeminiChat"),
    "images": ("inference.backends.images.adapter", "ImagesAdapter"),
}
_BATCH_ADAPTERS: dict[Provider, tuple[str, str]] = {
    "openai": ("inference.backends.openai.batch", "OpenAIBatches"),
    "gemini": ("inference.backends.gemini.batch", "GeminiBatches"),
}
_AGENTS: dict[Role, Callable[..., Any]] = {
    "planner": RemotePlanner,
    "generator": RemoteGenerator,
    "critic": RemoteCritic,
    "scorer": RemoteScorer,
}
_CALL_OVERHEAD_SECONDS = 60


class RemoteAgentFactory:
    """Builds agents of one provider.

    Args:
        prices: model -> its price; required for every model where there is a budget.
        home: holds the database of batches, and that of the budget.
    """

    def __init__(
        self,
        provider: Provider,
        settings: ProviderSettings | ImagesSettings,
        prices: dict[str, Price],
        budget: BudgetSettings | None,
        home: Home,
    ) -> None:
        self._provider, self._settings = provider, settings
        self._prices, self._budget_settings, self._home = prices, budget, home

    def agents(self, roles: Sequence[Role]) -> Mapping[str, Any]:
        """Agents by role; those with the same endpoints share a client.

        Raises:
            BackendError: no model for a role, no price of a model, or a missing key.
        """
        models = {role: self._model(role) for role in roles}
        client = self._clients(list(models.values()))
        return {
            role: _AGENTS[role](self._provider, client(model), model)
            for role, model in models.items()
        }

    def expander(self, model: ExpanderModel) -> Expander:
        """Raises `BackendError`: a missing key, or no price of the model."""
        self._require_price(model)
        return RemoteExpander(self._provider, self._clients([model])(model), model)

    def _model(self, role: Role) -> RemoteModel:
        provider = self._provider
        model: RemoteModel | None = getattr(self._settings, role, None)
        if model is None:
            raise BackendError(
                f"the profile gives the {role} to backend {provider}, but `{provider}.{role}` is "
                "null; name a model there, or another backend under `roles`"
            )
        self._require_price(model)
        return model

    def _require_price(self, model: RemoteModel) -> None:
        if self._budget_settings and model.model not in self._prices:
            raise BackendError(
                f"the profile has a budget, but no price of {model.model}; add it under `prices` "
                "(0 where it is free)"
            )

    def _clients(
        self, models: Sequence[RemoteModel]
    ) -> Callable[[RemoteModel], CompletionClient[Any]]:
        """The client of each model: one for all models with the same endpoints."""
        adapter = _load(_ADAPTERS[self._provider])(self._settings.timeout_seconds)
        uses_batches = any(getattr(model, "batch", False) for model in models)
        client = cache(partial(self._client, adapter, uses_batches))
        return lambda model: client(tuple(self._settings.endpoints_of(model)))

    def _client(
        self, adapter: Any, uses_batches: bool, settings: tuple[EndpointSettings, ...]
    ) -> CompletionClient[Any]:
        for endpoint in settings:
            endpoint.secret()  # fail before the first call if a key is missing
        endpoints = Endpoints(settings, adapter.connect, adapter.close)
        batches = self._batch_client(settings[0]) if uses_batches else None
        return CompletionClient(adapter, endpoints, self._prices, self._budget, batches)

    def _batch_client(self, endpoint: EndpointSettings) -> BatchClient[Any]:
        settings = cast(ProviderSettings, self._settings)
        adapter = _load(_BATCH_ADAPTERS[self._provider])(settings.timeout_seconds)
        endpoints = Endpoints([endpoint], adapter.connect, adapter.close)
        store = BatchStore(self._home.local / "batches.sqlite")
        return BatchClient(
            adapter, endpoints, store, settings.gather_seconds, settings.poll_seconds
        )

    @cached_property
    def _budget(self) -> Budget | None:
        if self._budget_settings is None:
            return None
        max_call_seconds = self._settings.timeout_seconds + _CALL_OVERHEAD_SECONDS
        path = self._home.local / "spending.sqlite"
        return Budget(path, self._budget_settings.usd, max_call_seconds)


def _load(target: tuple[str, str]) -> Any:
    module, name = target
    return getattr(import_module(module), name)
