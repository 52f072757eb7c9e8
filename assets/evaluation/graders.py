"""The grader of a profile: chosen by the world that its pack is written for."""

from collections.abc import Mapping
from functools import cache

from inference.grading import Grader
from inference.sketch_world.grader import SketchGrader

from ..core.profile import Profile
from ..prompts.pack_loader import load_pack

# World of a pack (`reader` in its taxonomy.yaml) -> its grader.
_GRADERS: Mapping[str, type[Grader]] = {"sketch": SketchGrader}
GRADED_METRICS = ("plan_valid", "plan_correct", "final_success")


def grader_of(profile: Profile) -> Grader | None:
    """The grader of the profile's pack; None where there is none."""
    grader = _GRADERS.get(_world_of(profile.pack) or "")
    return grader() if grader else None


def describe_grader(profile: Profile) -> str:
    """One line for an evaluation's metadata: who graded, or which metrics are missing."""
    if grader := grader_of(profile):
        return grader.name
    return f"none for pack {profile.pack}, so these are missing: {', '.join(GRADED_METRICS)}"


@cache
def _world_of(pack: str) -> str | None:
    return load_pack(pack).taxonomy.reader
