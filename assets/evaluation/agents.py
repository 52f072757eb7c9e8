"""The planner and critic of a variant: checkpoints, or none.

A reference is a checkpoint's name (its newest version) or `name@version`; None is no agent.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from inference.backends.checkpoint.agents import CheckpointCritic, CheckpointPlanner
from inference.backends.checkpoint.manifest import AgentRole
from inference.backends.checkpoint.model import CheckpointModel
from inference.roles import Critic, Plan, Planner, PlanRequest, PlanStep, Verdict
from training.registry import CheckpointRegistry
from warehouse import EncodedImage

from ..checkpoints.recipes import LINEAGE, newest_version
from ..core.foundry import FoundryResource
from .ablation_recipes import ABLATION_RECIPES


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

    def planner(self, reference: str | None) -> Planner:
        if reference is None:
            return PassthroughPlanner()
        if self.foundry.settings.trained_server("planner"):
            return cast(Planner, self._served("planner", reference))
        return CheckpointPlanner(self._model(reference))

    def critic(self, reference: str | None) -> Critic:
        if reference is None:
            return AcceptAllCritic()
        if self.foundry.settings.trained_server("critic"):
            return cast(Critic, self._served("critic", reference))
        return CheckpointCritic(self._model(reference))

    def _served(self, role: AgentRole, reference: str) -> object:
        settings, home = self.foundry.settings, self.foundry.home
        return settings.agent(role, str(self._folder(reference)), home)

    def _model(self, reference: str) -> CheckpointModel:
        folder = self._folder(reference)
        if folder not in self._models:
            self._models[folder] = CheckpointModel(folder, self.foundry.settings.checkpoint)
        return self._models[folder]

    def _folder(self, reference: str) -> Path:
        name, version = checkpoint_of(self.foundry, reference)
        return CheckpointRegistry(self.foundry.home).usable_folder(name, version)


def checkpoint_of(foundry: FoundryResource, reference: str) -> tuple[str, str]:
    """Name and version of a reference."""
    name, _, version = reference.partition("@")
    recipe_of = (LINEAGE | ABLATION_RECIPES)[name]
    return name, version or newest_version(foundry.home, recipe_of(foundry))
