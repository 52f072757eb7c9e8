"""The backend `sketch`: the embedded world, which plays all roles without a network or a GPU."""

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.trajectories import Role
from warehouse import Home

from ...sketch_world.settings import SketchSettings
from ..backend import Backends, BackendSettings, register


@register
class SketchBackend(SketchSettings, BackendSettings):
    """The embedded world's rates and sizes."""

    backend = "sketch"
    summary = "The embedded world's rates and sizes"
    plays = ("planner", "generator", "critic", "scorer")

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        from .agents import SketchCritic, SketchGenerator, SketchPlanner, SketchScorer

        return {
            "planner": SketchPlanner(),
            "generator": SketchGenerator(self),
            "critic": SketchCritic(self),
            "scorer": SketchScorer(self),
        }
