"""The planner and critic of a variant: checkpoints, or none.

A reference is a checkpoint's name (its newest version) or `name@version`; None is no agent.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inference.backends.checkpoint.backend import (
    CheckpointBackend,
    CheckpointCritic,
    CheckpointModel,
    CheckpointPlanner,
)
from inference.backends.checkpoint.manifest import AgentRole
from inference.roles import Plan, PlanRequest, PlanStep, Roles, Verdict
from schemas import FoundryError
from training.registry import CheckpointRegistry
from warehouse import EncodedImage

from ..checkpoints.recipes import newest_version
from ..core.foundry import FoundryResource
from ..core.profile import Profile
from .ablation import checkpoint_recipe
from .variants import Variant


class PassthroughPlanner:
    """No planner: the request's own text is the only prompt."""

    backend, model = "none", "request-as-prompt"

    async def plan(self, request: PlanRequest) -> Plan:
        return Plan((PlanStep(1, "The request", None, request.text),))


class AcceptAllCritic:
    """No critic: every image is accepted."""

    backend, model = "none", "accepts-all"

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        return Verdict(True, "", "")


@dataclass(frozen=True)
class AgentFactory:
    """Agents by reference, from a home's checkpoints; equal ones share the loaded model."""

    foundry: FoundryResource
    _models: dict[Path, CheckpointModel] = field(default_factory=dict)

    def roles(self, variant: Variant) -> Roles:
        """The profile's roles with a variant's planner and critic.

        Raises FoundryError where there is no such checkpoint, or it is incomplete.
        """
        planner = self._agent("planner", variant) if variant.planner else PassthroughPlanner()
        critic = self._agent("critic", variant) if variant.critic else AcceptAllCritic()
        return replace(self.foundry.roles, planner=planner, critic=critic)

    def _agent(self, role: AgentRole, variant: Variant) -> Any:
        profile, home = self.foundry.settings, self.foundry.home
        if problem := oracle_problem(profile, variant):
            raise FoundryError(f"variant {variant.name}: {problem}")
        if variant.provider:
            return profile.of_backend(role, variant.provider[0], home)
        name, _, version = str(getattr(variant, role)).partition("@")
        recipe = checkpoint_recipe(self.foundry, name, variant.training_seed)
        version = version or newest_version(home, recipe)
        folder = CheckpointRegistry(home).usable_folder(recipe.name, version)
        of_critic = role == "planner" and variant.answers == "sampled"
        answers = "usual" if of_critic else variant.answers
        if profile.trained_server(role):
            return profile.agent(role, str(folder), home, answers)
        agent = CheckpointPlanner if role == "planner" else CheckpointCritic
        return agent(self._model(folder), answers)

    def _model(self, folder: Path) -> CheckpointModel:
        if folder not in self._models:
            self._models[folder] = CheckpointModel(
                folder, self.foundry.settings.section(CheckpointBackend)
            )
        return self._models[folder]


def oracle_problem(profile: Profile, variant: Variant) -> str | None:
    """Why a profile cannot have an oracle; None: it can, or the variant is none."""
    if variant.provider is None:
        return None
    backend, model = variant.provider
    section = profile.apis[backend]
    agents = section.model_of("planner"), section.model_of("critic")
    if not all(agent and agent.model.startswith(model) for agent in agents):
        return f"`{backend}.planner` and `{backend}.critic` of the profile are not {model}"
    try:
        for agent in agents:
            for endpoint in section.endpoints_of(agent):
                endpoint.secret()
    except FoundryError as error:
        return str(error)
    return None
