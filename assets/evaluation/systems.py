"""The systems of planner and critic that may serve, which promotion decides about.

Both can be promoted alone, so every choice between newest and promoted ones is a candidate.
Candidates are compared with the system in use, and with the best ever promoted: else many small
losses, each within the margin, would add up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from schemas.training import CRITIC, PLANNER
from training.registry import CheckpointRegistry

from ..checkpoints import recipes
from ..core.foundry import FoundryResource
from .variants import BEST, CANDIDATE, NEW_CRITIC, NEW_PLANNER, PROMOTED, Variant


@dataclass(frozen=True)
class System:
    """Versions of planner and critic."""

    planner: str
    critic: str

    @property
    def versions(self) -> dict[str, str]:
        """Name of the checkpoint -> version."""
        return {PLANNER: self.planner, CRITIC: self.critic}

    def variant(self, name: str) -> Variant:
        return Variant(name, f"{PLANNER}@{self.planner}", f"{CRITIC}@{self.critic}")

    def __str__(self) -> str:
        return f"planner {self.planner} with critic {self.critic}"


def newest_system(foundry: FoundryResource) -> System:
    """The newest versions: of the present data, else the last that were trained."""
    planner, critic = recipes.planner_sft(foundry), recipes.critic_rl(foundry)
    return System(
        recipes.newest_version(foundry.home, planner), recipes.newest_version(foundry.home, critic)
    )


def system_in_use(registry: CheckpointRegistry) -> System | None:
    """The promoted versions; None unless there are both."""
    planner, critic = registry.promoted(PLANNER), registry.promoted(CRITIC)
    return System(planner.version, critic.version) if planner and critic else None


def candidate_systems(foundry: FoundryResource) -> dict[str, System]:
    """Variant -> system that may be promoted, the newest first; none where that is in use.

    Only those whose versions are trained: one agent may be newer than the other.
    """
    registry, newest = CheckpointRegistry(foundry.home), newest_system(foundry)
    planner, critic = registry.promoted(PLANNER), registry.promoted(CRITIC)
    systems = {CANDIDATE: newest}
    if planner:
        systems[NEW_CRITIC] = System(planner.version, newest.critic)
    if critic:
        systems[NEW_PLANNER] = System(newest.planner, critic.version)
    distinct = {system: name for name, system in reversed(systems.items())}
    in_use = system_in_use(registry)
    return {
        name: system
        for name, system in systems.items()
        if distinct[system] == name
        and system != in_use
        and all(registry.is_complete(*version) for version in system.versions.items())
    }


def reference_systems(foundry: FoundryResource) -> dict[str, System]:
    """Variant -> system that candidates are compared with; none where there are no candidates.

    The one in use, and for every metric the one with the highest mean when it was promoted.
    """
    registry = CheckpointRegistry(foundry.home)
    in_use = system_in_use(registry)
    if in_use is None or not candidate_systems(foundry):
        return {}
    best = dict.fromkeys(system for system in _best_systems(registry) if system != in_use)
    return {PROMOTED: in_use, **{f"{BEST}{n}": system for n, system in enumerate(best, 1)}}


def is_system_variant(name: str) -> bool:
    """Whether a variant of the table `evaluations` is one that only promotion needs."""
    return name in (PROMOTED, NEW_PLANNER, NEW_CRITIC) or name.startswith(BEST)


def _best_systems(registry: CheckpointRegistry) -> Iterator[System]:
    """Per metric the promoted system with the highest mean when it was promoted.

    Those with a version that was rolled back or whose files are gone are left out.
    """
    usable = {
        (row.name, row.version)
        for row in (*registry.rows(PLANNER), *registry.rows(CRITIC))
        if row.status != "rejected" and registry.is_complete(row.name, row.version)
    }
    evaluated = {
        System(event.system[PLANNER], event.system[CRITIC]): event.means
        for event in (*registry.history(PLANNER), *registry.history(CRITIC))
        if event.means and set(event.system.items()) <= usable
    }
    for metric in sorted({metric for means in evaluated.values() for metric in means}):
        yield max(evaluated, key=lambda system: evaluated[system].get(metric, -inf))
