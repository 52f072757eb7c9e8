"""The planner and critic of a variant: checkpoints, or none.

A reference is a checkpoint's name (the version that the profile makes of it now) or
`name@version`; None is no agent.
"""

from dataclasses import dataclass, field
from pathlib import Path

from inference.backends.checkpoint.agents import CheckpointCritic, CheckpointPlanner
from inference.backends.checkpoint.model import CheckpointModel
from inference.roles import Critic, Plan, Planner, PlanRequest, PlanStep, Verdict
from training.registry import CheckpointRegistry
from warehouse import EncodedImage

from ..checkpoints.recipes import LINEAGE
from ..core.foundry import FoundryResource
from .ablation_recipes import ABLATION_RECIPES
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

    def planner(self, reference: str | None) -> Planner:
        return CheckpointPlanner(self._model(reference)) if reference else PassthroughPlanner()

    def critic(self, reference: str | None) -> Critic:
        return CheckpointCritic(self._model(reference)) if reference else AcceptAllCritic()

    def untrained(self, variant: Variant) -> list[str]:
        """`name version` of a variant's checkpoints that do not exist (yet)."""
        registry = CheckpointRegistry(self.foundry.home)
        agents = [self._version(each) for each in (variant.planner, variant.critic) if each]
        return [" ".join(agent) for agent in agents if not registry.is_complete(*agent)]

    def _version(self, reference: str) -> tuple[str, str]:
        name, _, version = reference.partition("@")
        return name, version or (LINEAGE | ABLATION_RECIPES)[name](self.foundry).version

    def _model(self, reference: str) -> CheckpointModel:
        name, version = self._version(reference)
        registry = CheckpointRegistry(self.foundry.home)
        registry.find(name, version)
        folder = registry.folder(name, version)
        if folder not in self._models:
            self._models[folder] = CheckpointModel(folder, self.foundry.settings.checkpoint)
        return self._models[folder]
