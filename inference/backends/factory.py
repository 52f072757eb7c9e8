"""Backends of a profile: their settings, and the agents that are built from them.

A new backend is a section of `Backends`, a name in the literals below and a case in
`Backends._agents`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import Field, model_validator

from schemas.trajectories import LOOP_ROLES, Role
from schemas.yaml_config import ConfigModel
from warehouse import Home

from ..engine.ensemble import Ensemble, EnsembleSettings
from ..roles import Expander, Judge, Roles, RubricWriter
from ..sketch_world.settings import SketchSettings
from .checkpoint.model import CheckpointSettings
from .diffusers.registry import DiffusersSettings
from .editscore.loading import EditScoreSettings
from .providers.settings import (
    BudgetSettings,
    ExpanderModel,
    GeminiSettings,
    ImagesSettings,
    JudgeModel,
    OpenAISettings,
    Price,
    RemoteModel,
    RubricModel,
)

AgentBackend = Literal["sketch", "checkpoint", "openai", "gemini"]
ScorerBackend = Literal["sketch", "editscore", "openai", "gemini", "ensemble"]
ChatBackend = Literal["openai", "gemini"]
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

        Raises:
            FoundryError: something that the profile names is missing, or settings are.
        """
        bound = sorted(self.bound.items())
        agents = {backend: self._agents(backend, roles, home) for backend, roles in bound}
        by_role = {
            role: agents[name][role] for role, name in dict(self.roles).items() if name in agents
        }
        if self.ensemble and self.roles.scorer == "ensemble":
            weights = cast(dict[str, float], self.ensemble.members)
            scorers = {backend: agents[backend]["scorer"] for backend in weights}
            by_role["scorer"] = Ensemble(scorers, weights)
        return Roles(**by_role)

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

    def expander(self, home: Home, backend: ChatBackend, model: ExpanderModel) -> Expander:
        """Build the model that proposes terms for vocabulary banks, at a provider's endpoints.

        This and the next two raise BackendError: a key is missing, or there is a budget but no
        price of the model.
        """
        return cast(Expander, self._remote_agents(backend, {"expander": model}, home)["expander"])

    def rubric_writer(self, home: Home, backend: ChatBackend, model: RubricModel) -> RubricWriter:
        """Build the model that writes rubrics."""
        models: dict[Role, RemoteModel | None] = {"rubric_writer": model}
        return cast(RubricWriter, self._remote_agents(backend, models, home)["rubric_writer"])

    def judge(self, home: Home, backend: ChatBackend, model: JudgeModel) -> Judge:
        """Build the model that judges by rubrics."""
        return cast(Judge, self._remote_agents(backend, {"judge": model}, home)["judge"])

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

                return checkpoint_agents(cast(Any, roles), self.checkpoint, home)
            case "editscore":
                from .editscore.scorer import EditScoreScorer

                return {"scorer": EditScoreScorer(self.editscore)}
            case "diffusers":
                from .diffusers.pipeline_runner import DiffusersGenerator

                return {"generator": DiffusersGenerator(self.diffusers)}
        settings = getattr(self, backend)
        models = {role: getattr(settings, role, None) for role in roles}
        return self._remote_agents(backend, models, home)

    def _remote_agents(
        self, provider: Any, models: Mapping[Role, RemoteModel | None], home: Home
    ) -> Mapping[Role, Any]:
        from .providers.factory import remote_agents

        settings = getattr(self, provider)
        return remote_agents(provider, settings, models, self.prices, self.budget, home)
