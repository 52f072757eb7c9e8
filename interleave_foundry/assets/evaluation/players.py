"""Who plays a variant: checkpoints, the teachers, or nobody.

A reference is `sketch` (the teacher), the name of a checkpoint (its newest version),
`name@version`, or a folder; None is nobody.
"""

from pathlib import Path

from ...inference.roles import Critic, Plan, Planner, PlanRequest, PlanStep, Verdict
from ...schemas import FoundryError
from ...training.checkpoints import Checkpoints
from ...warehouse import Home, Picture
from ..foundry import Foundry

TEACHER = "sketch"


class Verbatim:
    """No planner: the request's own words are the only prompt."""

    backend, model = "none", "request-as-prompt"

    async def plan(self, request: PlanRequest) -> Plan:
        """One step that draws the request."""
        return Plan((PlanStep(1, "The request", None, request.text),))


class Accepting:
    """No critic: every picture is good enough."""

    backend, model = "none", "accepts-all"

    async def judge(
        self, before: Picture | None, after: Picture, instruction: str, prompt: str
    ) -> Verdict:
        """True."""
        return Verdict(True, "", "")


def planner_of(foundry: Foundry, reference: str | None) -> Planner:
    """The planner that a reference names.

    Raises:
        FoundryError: there is no such checkpoint, or it is incomplete.
    """
    if reference is None:
        return Verbatim()
    if reference == TEACHER:
        from ...inference.sketch.planner import SketchPlanner

        return SketchPlanner()
    from ...inference.checkpoint import CheckpointPlanner

    return CheckpointPlanner(checkpoint_folder(foundry.home, reference))


def critic_of(foundry: Foundry, reference: str | None) -> Critic:
    """The critic that a reference names.

    Raises:
        FoundryError: there is no such checkpoint, or it is incomplete.
    """
    if reference is None:
        return Accepting()
    if reference == TEACHER:
        from ...inference.sketch.critic import SketchCritic

        return SketchCritic(foundry.settings.sketch)
    from ...inference.checkpoint import CheckpointCritic

    return CheckpointCritic(checkpoint_folder(foundry.home, reference))


def checkpoint_folder(home: Home, reference: str) -> Path:
    """Where the checkpoint of a reference is.

    Raises:
        FoundryError: there is no such checkpoint.
    """
    if Path(reference).is_dir():
        return Path(reference)
    checkpoints, (name, _, version) = Checkpoints(home), reference.partition("@")
    if version:
        return Path(checkpoints.find(name, version).uri)
    if rows := checkpoints.rows(name):
        return Path(rows[-1].uri)
    raise FoundryError(f"no checkpoint {name} yet; `interleave run --select {name}` makes one")
