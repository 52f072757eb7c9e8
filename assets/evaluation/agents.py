"""The planner and critic of a variant: checkpoints, or none.

A reference is a checkpoint's name (its newest version) or `name@version`; None is no agent.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from inference.backends.checkpoint.agents import CheckpointCritic, CheckpointPlanner
from inference.backends.checkpoint.manifest import AgentRole, Answers
from inference.backends.checkpoint.model import CheckpointModel
from inference.roles import Critic, Plan, Planner, PlanRequest, PlanStep, Verdict
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
    """Agents by reference, from a home's checkpoints; equal ones share the loaded model.

    Both methods raise FoundryError where there is no such checkpoint, or it is incomplete.
    """

    foundry: FoundryResource
    _models: dict[Path, CheckpointModel] = field(default_factory=dict)

    def planner(self, variant: Variant) -> Planner:
        if variant.planner is None:
            return PassthroughPlanner()
        if variant.provider:
            return cast(Planner, self._oracle("planner", variant))
        answers = "usual" if variant.answers == "sampled" else variant.answers
        folder = self._folder(variant.planner, variant.training_seed)
        if self.foundry.settings.trained_server("planner"):
            return cast(Planner, self._served("planner", folder, answers))
        return CheckpointPlanner(self._model(folder), answers)

    def critic(self, variant: Variant) -> Critic:
        if variant.critic is None:
            return AcceptAllCritic()
        if variant.provider:
            return cast(Critic, self._oracle("critic", variant))
        folder = self._folder(variant.critic, variant.training_seed)
        if self.foundry.settings.trained_server("critic"):
            return cast(Critic, self._served("critic", folder, variant.answers))
        return CheckpointCritic(self._model(folder), variant.answers)

    def _served(self, role: AgentRole, folder: Path, answers: Answers) -> object:
        settings, home = self.foundry.settings, self.foundry.home
        return settings.served_agent(role, str(folder), home, answers)

    def _oracle(self, role: AgentRole, variant: Variant) -> object:
        if problem := oracle_problem(self.foundry.settings, variant):
            raise FoundryError(f"variant {variant.name}: {problem}")
        assert variant.provider is not None
        backend, _ = variant.provider
        return self.foundry.settings.hosted_agent(role, backend, self.foundry.home)

    def _model(self, folder: Path) -> CheckpointModel:
        if folder not in self._models:
            self._models[folder] = CheckpointModel(folder, self.foundry.settings.checkpoint)
        return self._models[folder]

    def _folder(self, reference: str, training_seed: int | None) -> Path:
        name, version = checkpoint_of(self.foundry, reference, training_seed)
        return CheckpointRegistry(self.foundry.home).usable_folder(name, version)


def oracle_problem(profile: Profile, variant: Variant) -> str | None:
    """Why a profile cannot have an oracle; None: it can, or the variant is none."""
    if variant.provider is None:
        return None
    backend, model = variant.provider
    section = getattr(profile, backend)
    agents = section.planner, section.critic
    if not all(agent and agent.model.startswith(model) for agent in agents):
        return f"`{backend}.planner` and `{backend}.critic` of the profile are not {model}"
    try:
        for agent in agents:
            for endpoint in section.endpoints_of(agent):
                endpoint.secret()
    except FoundryError as error:
        return str(error)
    return None


def checkpoint_of(
    foundry: FoundryResource, reference: str, training_seed: int | None = None
) -> tuple[str, str]:
    """Name and version of a reference, under a training seed of the ablation."""
    name, _, version = reference.partition("@")
    recipe = checkpoint_recipe(foundry, name, training_seed)
    return recipe.name, version or newest_version(foundry.home, recipe)
