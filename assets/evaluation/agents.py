"""Who plays a variant: checkpoints, the teachers, or nobody.

A reference is `sketch` (the teacher), a checkpoint's name (the version that the profile makes of
it; of names that are no asset, the newest), `name@version`, or a folder; None is nobody.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inference.backends.checkpoint.agents import (
    BatchedCheckpoint,
    CheckpointCritic,
    CheckpointPlanner,
)
from inference.roles import Critic, Plan, Planner, PlanRequest, PlanStep, Verdict
from schemas import FoundryError
from training.registry import CheckpointRegistry
from warehouse import EncodedImage

from ..core.foundry import FoundryResource

TEACHER = "sketch"

# Name of a checkpoint -> the version that a profile makes of it now.
Versions = Mapping[str, Callable[[], str]]


class PassthroughPlanner:
    """No planner: the request's own words are the only prompt."""

    backend, model = "none", "request-as-prompt"

    async def plan(self, request: PlanRequest) -> Plan:
        """One step that draws the request."""
        return Plan((PlanStep(1, "The request", None, request.text),))


class AcceptAllCritic:
    """No critic: every picture is good enough."""

    backend, model = "none", "accepts-all"

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        """True."""
        return Verdict(True, "", "")


@dataclass(frozen=True)
class AgentFactory:
    """The agents of a lake and a profile; variants with one checkpoint share its loaded model."""

    foundry: FoundryResource
    versions: Versions = field(default_factory=dict)
    _desks: dict[Path, BatchedCheckpoint] = field(default_factory=dict)

    def planner(self, reference: str | None) -> Planner:
        """The planner that a reference names.

        Raises:
            FoundryError: there is no such checkpoint, or it is incomplete.
        """
        if reference is None:
            return PassthroughPlanner()
        if reference == TEACHER:
            from inference.sketch_world.planner import SketchPlanner

            return SketchPlanner()
        return CheckpointPlanner(self._desk(reference))

    def critic(self, reference: str | None) -> Critic:
        """The critic that a reference names.

        Raises:
            FoundryError: there is no such checkpoint, or it is incomplete.
        """
        if reference is None:
            return AcceptAllCritic()
        if reference == TEACHER:
            from inference.sketch_world.critic import SketchCritic

            return SketchCritic(self.foundry.settings.sketch)
        return CheckpointCritic(self._desk(reference))

    def _desk(self, reference: str) -> BatchedCheckpoint:
        folder = self.folder(reference)
        if folder not in self._desks:
            self._desks[folder] = BatchedCheckpoint(folder, self.foundry.settings.checkpoint)
        return self._desks[folder]

    def folder(self, reference: str) -> Path:
        """Where the checkpoint of a reference is.

        Raises:
            FoundryError: there is no such checkpoint.
        """
        if Path(reference).is_dir():
            return Path(reference)
        name, _, version = reference.partition("@")
        checkpoints = CheckpointRegistry(self.foundry.home)
        if not version and name in self.versions:
            version = self.versions[name]()
        if version:
            checkpoints.find(name, version)
            return checkpoints.folder(name, version)
        if rows := checkpoints.rows(name):
            return checkpoints.folder(name, rows[-1].version)
        raise FoundryError(f"no checkpoint {name} yet; `interleave run --select {name}` makes one")
