"""Backends of a profile: their settings, and the table that builds agents from them.

A new backend is a section of `Backends`, a name in the literals below and a line in `_BUILDERS`.
Builders import their backend when a profile uses it: torch, diffusers and SDKs are heavy.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

from pydantic import Field, model_validator

from schemas.trajectories import LOOP_ROLES, Role
from schemas.yaml_config import ConfigModel
from warehouse import Home

from ..engine.ensemble import Ensemble, EnsembleSettings
from ..roles import Roles
from ..sketch_world.settings import SketchSettings
from ..vocabulary_protocol import Expander
from .checkpoint.settings import CheckpointSettings
from .diffusers.settings import DiffusersSettings
from .editscore.settings import EditScoreSettings
from .providers.settings import (
    BudgetSettings,
    ExpanderModel,
    GeminiSettings,
    ImagesSettings,
    OpenAISettings,
    Price,
)

AgentBackend = Literal["sketch", "checkpoint", "openai", "gemini"]
ScorerBackend = Literal["sketch", "editscore", "openai", "gemini", "ensemble"]
ExpanderBackend = Literal["openai", "gemini"]
GeneratorBackend = Literal["sketch", "gemini", "images", "diffusers"]


class RoleBindings(ConfigModel):
    """The backend of each role."""

    planner: AgentBackend = Field(description="Writes the steps of a plan")
    generator: GeneratorBackend = Field(description="Draws the pictures")
    critic: AgentBackend = Field(description="Accepts a picture or rewrites its prompt")
    scorer: ScorerBackend = Field(description="Grades every attempt")


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

    @model_validator(mode="after")
    def _names_members(self) -> "Backends":
        if self.roles.scorer == "ensemble" and self.ensemble is None:
            raise ValueError(
                "roles.scorer is an ensemble: name its members and their weights, such as "
                "`ensemble: {members: {sketch: 1, openai: 2}}`"
            )
        return self

    def build(self, home: Home) -> Roles:
        """Build the agents of the four roles.

        Args:
            home: where checkpoints are looked up; holds the database of the budget.

        Raises:
            FoundryError: something that the profile names is missing, or settings are.
        """
        agents = {
            backend: _BUILDERS[backend](self, roles, home)
            for backend, roles in sorted(self.bound.items())
        }
        bound = {
            role: agents[backend][role]
            for role, backend in dict(self.roles).items()
            if backend in agents
        }
        if self.ensemble and self.roles.scorer == "ensemble":
            weights = cast(dict[str, float], self.ensemble.members)
            scorers = {backend: agents[backend]["scorer"] for backend in weights}
            bound["scorer"] = Ensemble(scorers, weights)
        return Roles(**bound)

    @property
    def bound(self) -> dict[str, list[Role]]:
        """Backends in use -> their roles; the members of an ensemble are scorers."""
        bound: dict[str, list[Role]] = {}
        for role in LOOP_ROLES:
            backends: Sequence[str] = [getattr(self.roles, role)]
            if backends == ["ensemble"] and self.ensemble:
                backends = list(self.ensemble.members)
            for backend in backends:
                bound.setdefault(backend, []).append(role)
        return bound

    def expander(self, home: Home, backend: ExpanderBackend, model: ExpanderModel) -> Expander:
        """Build the model that proposes terms for vocabulary banks, at a provider's endpoints.

        Raises:
            BackendError: a key is missing, or there is a budget but no price of the model.
        """
        return _remote_factory(backend, self, home).expander(model)


_Builder = Callable[[Backends, Sequence[Role], Home], Mapping[str, Any]]


def _build_sketch(backends: Backends, roles: Sequence[Role], home: Home) -> Mapping[str, Any]:
    from .sketch.agents import SketchCritic, SketchGenerator, SketchPlanner, SketchScorer

    settings = backends.sketch
    agents: dict[Role, Callable[[], Any]] = {
        "planner": SketchPlanner,
        "generator": partial(SketchGenerator, settings),
        "critic": partial(SketchCritic, settings),
        "scorer": partial(SketchScorer, settings),
    }
    return {role: agents[role]() for role in roles}


def _build_checkpoint(backends: Backends, roles: Sequence[Role], home: Home) -> Mapping[str, Any]:
    from .checkpoint.agents import checkpoint_agents
    from .checkpoint.manifest import AgentRole

    agent_roles: tuple[AgentRole, ...] = ("planner", "critic")
    names = [role for role in agent_roles if role in roles]
    return checkpoint_agents(names, backends.checkpoint, home)


def _build_editscore(backends: Backends, roles: Sequence[Role], home: Home) -> Mapping[str, Any]:
    from .editscore.scorer import EditScoreScorer

    return {role: EditScoreScorer(backends.editscore) for role in roles}


def _build_diffusers(backends: Backends, roles: Sequence[Role], home: Home) -> Mapping[str, Any]:
    from .diffusers.generator import DiffusersGenerator

    return {role: DiffusersGenerator(backends.diffusers) for role in roles}


def _build_remote(
    provider: Literal["openai", "gemini", "images"],
    backends: Backends,
    roles: Sequence[Role],
    home: Home,
) -> Mapping[str, Any]:
    return _remote_factory(provider, backends, home).agents(roles)


def _remote_factory(
    provider: Literal["openai", "gemini", "images"], backends: Backends, home: Home
) -> Any:
    from .providers.factory import RemoteAgentFactory

    settings = getattr(backends, provider)
    return RemoteAgentFactory(provider, settings, backends.prices, backends.budget, home)


_BUILDERS: dict[str, _Builder] = {
    "sketch": _build_sketch,
    "checkpoint": _build_checkpoint,
    "editscore": _build_editscore,
    "diffusers": _build_diffusers,
    "openai": partial(_build_remote, "openai"),
    "gemini": partial(_build_remote, "gemini"),
    "images": partial(_build_remote, "images"),
}
