"""From a profile's words to the backends that play the roles; heavy imports happen here, late."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any, Literal, cast

from pydantic import Field, model_validator

from schemas.trajectories import LOOP_ROLES, Role
from schemas.yaml_config import ConfigModel
from warehouse import Home

from ..engine.ensemble import Ensemble, EnsembleSettings
from ..roles import BackendError, Roles
from ..sketch_world.settings import SketchSettings
from ..vocabulary_protocol import Expander
from .checkpoint.settings import CheckpointSettings
from .diffusers.settings import DiffusersSettings
from .editscore.settings import EditScoreSettings
from .providers.endpoints import EndpointSettings
from .providers.prices import Price
from .providers.settings import (
    BudgetSettings,
    ExpanderModel,
    GeminiSettings,
    ImagesSettings,
    OpenAISettings,
    ProviderSettings,
    RemoteModel,
)

AgentBackend = Literal["sketch", "checkpoint", "openai", "gemini"]
ScorerBackend = Literal["sketch", "editscore", "openai", "gemini", "ensemble"]
ExpanderBackend = Literal["openai", "gemini"]
Provider = Literal["openai", "gemini", "images"]
GeneratorBackend = Literal["sketch", "gemini", "images", "diffusers"]


class RoleBindings(ConfigModel):
    """Which backend plays which role."""

    planner: AgentBackend = Field(description="Writes the steps of a plan")
    generator: GeneratorBackend = Field(description="Draws the pictures")
    critic: AgentBackend = Field(description="Accepts a picture or rewrites its prompt")
    scorer: ScorerBackend = Field(description="Grades every attempt")


class Backends(ConfigModel):
    """Who plays the four roles, and everything that may be set about the backends."""

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
        description="OpenAI, or an endpoint that speaks its API, where `roles` names openai",
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
        default_factory=dict, description="Model -> its price; what is not in it is not priced"
    )
    budget: BudgetSettings | None = Field(None, description="null: as much as it takes")

    @model_validator(mode="after")
    def _names_members(self) -> "Backends":
        if self.roles.scorer == "ensemble" and self.ensemble is None:
            raise ValueError(
                "roles.scorer is an ensemble: name its members and their weights, such as "
                "`ensemble: {members: {sketch: 1, openai: 2}}`"
            )
        return self

    def build(self, home: Home) -> Roles:
        """The players of the four roles.

        Args:
            home: where checkpoints are looked up and where the budget is kept.

        Raises:
            FoundryError: what the profile names is not there, or is not enough to begin.
        """
        makers = BackendFactory(self, home)
        players = {name: makers.of(name)(mine) for name, mine in sorted(self.bound.items())}
        made = {
            role: players[name][role] for role, name in dict(self.roles).items() if name in players
        }
        if self.ensemble and self.roles.scorer == "ensemble":
            weights = cast(dict[str, float], self.ensemble.members)
            scorers = {name: players[name]["scorer"] for name in weights}
            made["scorer"] = Ensemble(scorers, weights)
        return Roles(**made)

    @property
    def bound(self) -> dict[str, list[Role]]:
        """The backends at work and the roles that each plays, an ensemble's members among them."""
        bound: dict[str, list[Role]] = {}
        for role in LOOP_ROLES:
            for backend in self._players(role):
                bound.setdefault(backend, []).append(role)
        return bound

    def _players(self, role: Role) -> Sequence[str]:
        backend: str = getattr(self.roles, role)
        if backend == "ensemble" and self.ensemble:
            return list(self.ensemble.members)
        return [backend]

    def expander(self, home: Home, backend: ExpanderBackend, model: ExpanderModel) -> Expander:
        """Who proposes terms for vocabulary banks, at a provider's endpoints.

        Raises:
            BackendError: a key is missing, or the budget knows no price of the model.
        """
        return BackendFactory(self, home).expander(backend, model)


_Maker = Callable[[Sequence[Role]], Mapping[str, Any]]


class BackendFactory:
    """Makers of players by backend; two providers share one budget."""

    def __init__(self, settings: Backends, home: Home) -> None:
        self._settings, self._home = settings, home

    def of(self, backend: str) -> _Maker:
        makers: dict[str, _Maker] = {
            "sketch": self._sketch,
            "checkpoint": self._checkpoint,
            "editscore": self._editscore,
            "openai": partial(self._provided, "openai"),
            "gemini": partial(self._provided, "gemini"),
            "images": partial(self._provided, "images"),
            "diffusers": self._diffusers,
        }
        return makers[backend]

    def _sketch(self, roles: Sequence[Role]) -> dict[str, Any]:
        from ..sketch_world.critic import SketchCritic
        from ..sketch_world.generator import SketchGenerator
        from ..sketch_world.planner import SketchPlanner
        from ..sketch_world.scorer import SketchScorer

        settings = self._settings.sketch
        makers: dict[Role, Callable[[], Any]] = {
            "planner": SketchPlanner,
            "generator": partial(SketchGenerator, settings),
            "critic": partial(SketchCritic, settings),
            "scorer": partial(SketchScorer, settings),
        }
        return {role: makers[role]() for role in roles}

    def _checkpoint(self, roles: Sequence[Role]) -> Mapping[str, Any]:
        from .checkpoint.agents import checkpoint_agents

        settings, home = self._settings.checkpoint, self._home
        return checkpoint_agents(
            [role for role in ("planner", "critic") if role in roles], settings, home
        )

    def _editscore(self, roles: Sequence[Role]) -> dict[str, Any]:
        from .editscore.scorer import EditScoreScorer

        return {role: EditScoreScorer(self._settings.editscore) for role in roles}

    def _diffusers(self, roles: Sequence[Role]) -> Mapping[str, Any]:
        from .diffusers.generator import DiffusersGenerator

        return {role: DiffusersGenerator(self._settings.diffusers) for role in roles}

    def _provided(self, backend: Provider, roles: Sequence[Role]) -> dict[str, Any]:
        """Players at a provider; those with the same endpoints share them."""
        from .providers.agents import RemoteCritic, RemotePlanner, RemoteScorer
        from .providers.generator import RemoteGenerator

        makers: dict[Role, Callable[..., Any]] = {
            "planner": RemotePlanner,
            "generator": RemoteGenerator,
            "critic": RemoteCritic,
            "scorer": RemoteScorer,
        }
        models = {role: self._model(backend, role) for role in roles}
        chat_of = self._chats(backend, list(models.values()))
        return {
            role: makers[role](backend, chat_of(model), model) for role, model in models.items()
        }

    def expander(self, backend: ExpanderBackend, model: ExpanderModel) -> Expander:
        from .providers.expander import RemoteExpander

        self._require_price(model)
        return RemoteExpander(backend, self._chats(backend, [model])(model), model)

    def _chats(
        self, backend: Provider, models: Sequence[RemoteModel]
    ) -> Callable[[RemoteModel], Any]:
        """The way to each of a provider's models; those with the same endpoints share one."""
        settings, adapter = self._provider(backend), self._adapter(backend)
        waiting = any(getattr(model, "batch", False) for model in models)
        chat_at = cache(partial(self._chat, backend, adapter, waiting))
        return lambda model: chat_at(tuple(settings.endpoints_of(model)))

    def _adapter(self, backend: Provider) -> Any:
        seconds = self._provider(backend).timeout_seconds
        match backend:
            case "openai":
                from .openai.chat import OpenAIChat

                return OpenAIChat(seconds)
            case "gemini":
                from .gemini.chat import GeminiChat

                return GeminiChat(seconds)
            case "images":
                from .images.adapter import ImagesAdapter

                return ImagesAdapter(seconds)

    def _provider(self, backend: Provider) -> ProviderSettings | ImagesSettings:
        settings: ProviderSettings | ImagesSettings = getattr(self._settings, backend)
        return settings

    def _chat(
        self, backend: str, adapter: Any, waiting: bool, places: tuple[EndpointSettings, ...]
    ) -> Any:
        from .providers.chat import Chat
        from .providers.endpoints import Endpoints

        for place in places:
            place.secret()  # a key that is not there is better missed now
        endpoints = Endpoints(places, adapter.connect, adapter.close)
        batches = self._batches(backend, places) if waiting else None
        return Chat(adapter, endpoints, self._settings.prices, self._budget, batches)

    def _batches(self, backend: str, places: tuple[EndpointSettings, ...]) -> Any:
        from .gemini.batch import GeminiBatches
        from .openai.batch import OpenAIBatches
        from .providers.batches import BatchClient, BatchStore
        from .providers.endpoints import Endpoints

        settings: ProviderSettings = getattr(self._settings, backend)
        kind = OpenAIBatches if backend == "openai" else GeminiBatches
        adapter: Any = kind(settings.timeout_seconds)
        endpoints = Endpoints(places[:1], adapter.connect, adapter.close)
        book = BatchStore(self._home.local / "batches.sqlite")
        return BatchClient(adapter, endpoints, book, settings.gather_seconds, settings.poll_seconds)

    def _model(self, backend: Provider, role: Role) -> RemoteModel:
        model: RemoteModel | None = getattr(self._provider(backend), role, None)
        if model is None:
            raise BackendError(
                f"the profile gives the {role} to backend {backend}, but `{backend}.{role}` is "
                "null; name a model there, or another backend under `roles`"
            )
        self._require_price(model)
        return model

    def _require_price(self, model: RemoteModel) -> None:
        if self._settings.budget and model.model not in self._settings.prices:
            raise BackendError(
                f"the profile has a budget, and no price of {model.model}; add it under `prices` "
                "(0 where it is free)"
            )

    @cached_property
    def _budget(self) -> Any:
        from .providers.budget import Budget

        if self._settings.budget is None:
            return None
        providers = (self._settings.openai, self._settings.gemini, self._settings.images)
        slowest = max(provider.timeout_seconds for provider in providers)
        return Budget(self._home.local / "spending.sqlite", self._settings.budget.usd, slowest + 60)
