"""From a profile's words to the backends that play the roles; heavy imports happen here, late."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, cast

from pydantic import Field

from ..schemas.documents import Section
from ..schemas.trajectories import Role
from ..warehouse import Home
from .checkpoint.settings import CheckpointSettings
from .roles import Roles
from .sketch.settings import SketchSettings

BackendName = Literal["sketch"]
AgentBackendName = Literal["sketch", "checkpoint"]


class RoleBindings(Section):
    """Which backend plays which role."""

    planner: AgentBackendName = Field(description="Writes the steps of a plan")
    generator: BackendName = Field(description="Draws the pictures")
    critic: AgentBackendName = Field(description="Accepts a picture or rewrites its prompt")
    scorer: BackendName = Field(description="Grades every attempt")


def build_roles(
    bindings: RoleBindings, sketch: SketchSettings, checkpoint: CheckpointSettings, home: Home
) -> Roles:
    """The four backends of a profile.

    Args:
        home: where the table `checkpoints` is, in which checkpoints are looked up.

    Raises:
        FoundryError: a checkpoint is named that is not there, or none was promoted yet.
    """
    makers: dict[str, Callable[[Sequence[Role]], dict[str, Any]]] = {
        "sketch": partial(_sketch_roles, settings=sketch),
        "checkpoint": partial(_checkpoint_roles, settings=checkpoint, home=home),
    }
    bound = cast(dict[Role, str], dict(bindings))
    players: dict[str, Any] = {}
    for backend in sorted(set(bound.values())):
        players |= makers[backend]([role for role in bound if bound[role] == backend])
    return Roles(**players)


def _sketch_roles(roles: Sequence[Role], settings: SketchSettings) -> dict[str, Any]:
    from .sketch.critic import SketchCritic
    from .sketch.generator import SketchGenerator
    from .sketch.planner import SketchPlanner
    from .sketch.scorer import SketchScorer

    makers: dict[Role, Callable[[], Any]] = {
        "planner": SketchPlanner,
        "generator": partial(SketchGenerator, settings),
        "critic": partial(SketchCritic, settings),
        "scorer": partial(SketchScorer, settings),
    }
    return {role: makers[role]() for role in roles}


def _checkpoint_roles(
    roles: Sequence[Role], settings: CheckpointSettings, home: Home
) -> dict[str, Any]:
    from .checkpoint.players import players

    return players([role for role in ("planner", "critic") if role in roles], settings, home)
