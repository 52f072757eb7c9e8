"""Systems, a planner and a critic that serve together, which promotion decides about.

Planner and critic can be promoted alone, so every choice between newest and promoted ones is a
candidate. Candidates are compared with the system in use, and with the best ever promoted: else
many small losses, each within the margin, would add up.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from training.registry import CheckpointRegistry

from ..checkpoints import recipes
from ..core.foundry import FoundryResource
from .variants import (
    BEST,
    CANDIDATE,
    CRITIC_RL,
    NEW_CRITIC,
    NEW_PLANNER,
    PLANNER,
    PROMOTED,
    Variant,
)


@dataclass(frozen=True)
class System:
    """Versions of planner and critic."""

    planner: str
    critic: str

    @property
    def versions(self) -> dict[str, str]:
        """Name of the checkpoint -> version."""
        return {PLANNER: self.planner, CRITIC_RL: self.critic}

    def variant(self, name: str) -> Variant:
        return Variant(name, f"{PLANNER}@{self.planner}", f"{CRITIC_RL}@{self.critic}")

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
    planner, critic = registry.promoted(PLANNER), registry.promoted(CRITIC_RL)
    return System(planner.version, critic.version) if planner and critic else None


def candidate_systems(foundry: FoundryResource) -> dict[str, System]:
    """Variant -> system that may be promoted, the newest first; none where that is in use.

    Only those whose versions are trained: one agent may be newer than the other.
    """
    registry, newest = CheckpointRegistry(foundry.home), newest_system(foundry)
    planner, critic = registry.promoted(PLANNER), registry.promoted(CRITIC_RL)
    systems = {CANDIDATE: newest}
    if planner:
        systems[NEW_CRITIC] = System(planner.version, newest.critic)
    if critic:
        systems[NEW_PLANNER] = System(newest.planner, critic.version)
    trained = ((name, system) for name, system in systems.items() if _is_trained(registry, system))
    return _distinct(trained, [system_in_use(registry)])


def reference_systems(foundry: FoundryResource) -> dict[str, System]:
    """Variant -> system that candidates are compared with; none where there are no candidates.

    The one in use, and for every metric the one with the highest mean when it was promoted.
    """
    registry = CheckpointRegistry(foundry.home)
    in_use = system_in_use(registry)
    if in_use is None or not candidate_systems(foundry):
        return {}
    best = _distinct(((str(system), system) for system in _best_systems(registry)), [in_use])
    numbered = {f"{BEST}{n}": system for n, system in enumerate(best.values(), 1)}
    return {PROMOTED: in_use, **numbered}


def is_system_variant(name: str) -> bool:
    """Whether a variant of the table `evaluations` is one that only promotion needs."""
    return name in (PROMOTED, NEW_PLANNER, NEW_CRITIC) or name.startswith(BEST)


def _is_trained(registry: CheckpointRegistry, system: System) -> bool:
    return all(registry.is_complete(*version) for version in system.versions.items())


def _best_systems(registry: CheckpointRegistry) -> Iterator[System]:
    """Per metric the promoted system with the highest mean, of those that can still be used."""
    evaluated = _evaluated_systems(registry)
    metrics = {metric for means in evaluated.values() for metric in means}
    for metric in sorted(metrics):
        yield max(evaluated, key=lambda system: evaluated[system].get(metric, float("-inf")))


def _evaluated_systems(registry: CheckpointRegistry) -> dict[System, Mapping[str, float]]:
    """Systems that were promoted after an evaluation, and their means then.

    Those with a version that was rolled back or whose files are gone are left out.
    """
    usable = {
        (row.name, row.version)
        for row in (*registry.rows(PLANNER), *registry.rows(CRITIC_RL))
        if row.status != "rejected" and registry.is_complete(row.name, row.version)
    }
    events = (*registry.history(PLANNER), *registry.history(CRITIC_RL))
    return {
        System(event.system[PLANNER], event.system[CRITIC_RL]): event.means
        for event in events
        if event.means and set(event.system.items()) <= usable
    }


def _distinct(
    systems: Iterable[tuple[str, System]], without: Iterable[System | None]
) -> dict[str, System]:
    """The first variant of every system that is not in `without`."""
    seen = set(without)
    distinct: dict[str, System] = {}
    for name, system in systems:
        if system not in seen:
            distinct[name] = system
            seen.add(system)
    return distinct
