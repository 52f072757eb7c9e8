"""The systems of planner and critic that may serve, which promotion decides about.

Both can be promoted alone, so every choice between newest and promoted ones is a candidate.
Candidates are compared with the system in use, and with the best ever promoted: else many small
losses, each within the margin, would add up.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from schemas.training import CRITIC, PLANNER, SFT_CRITIC, CheckpointRow
from training.registry import CheckpointRegistry

from ..checkpoints import recipes
from ..core.foundry import FoundryResource
from .variants import BEST, CANDIDATE, NEW_CRITIC, NEW_PLANNER, PROMOTED, SUPERVISED, Variant

AGENTS = (PLANNER, CRITIC, SFT_CRITIC)
"""Names of the checkpoints that may serve."""


@dataclass(frozen=True)
class System:
    """Versions of planner and critic. `critic_name`: of the reinforced or the supervised one."""

    planner: str
    critic: str
    critic_name: str = CRITIC

    @classmethod
    def of(cls, versions: Mapping[str, str]) -> "System":
        """Of names of checkpoints and their versions."""
        name = CRITIC if CRITIC in versions else SFT_CRITIC
        return cls(versions[PLANNER], versions[name], name)

    @property
    def versions(self) -> dict[str, str]:
        """Name of the checkpoint -> version."""
        return {PLANNER: self.planner, self.critic_name: self.critic}

    def variant(self, name: str) -> Variant:
        planner, critic = (f"{name}@{version}" for name, version in self.versions.items())
        return Variant(name, planner, critic)

    def __str__(self) -> str:
        return f"planner {self.planner} with critic {self.critic}"


def newest_system(foundry: FoundryResource) -> System:
    """The newest versions: of the present data, else the last that were trained."""
    planner, critic = recipes.planner_sft(foundry), recipes.critic_rl(foundry)
    return System(
        recipes.newest_version(foundry.home, planner), recipes.newest_version(foundry.home, critic)
    )


def supervised_system(foundry: FoundryResource) -> System:
    """The newest planner, with the newest supervised critic."""
    critic = recipes.newest_version(foundry.home, recipes.critic_sft(foundry))
    return System(newest_system(foundry).planner, critic, SFT_CRITIC)


def system_in_use(registry: CheckpointRegistry) -> System | None:
    """The promoted versions; None unless there are both."""
    planner, critic = registry.promoted(PLANNER), _critic_in_use(registry)
    return System(planner.version, critic.version, critic.name) if planner and critic else None


def _critic_in_use(registry: CheckpointRegistry) -> CheckpointRow | None:
    return registry.promoted(CRITIC) or registry.promoted(SFT_CRITIC)


def candidate_systems(foundry: FoundryResource) -> dict[str, System]:
    """Variant -> system that may be promoted, the newest first; none where that is in use.

    Only those whose versions are trained: one agent may be newer than the other. The supervised
    critic is for as long as no reinforced one was better.
    """
    registry, newest = CheckpointRegistry(foundry.home), newest_system(foundry)
    planner, critic = registry.promoted(PLANNER), _critic_in_use(registry)
    systems = {CANDIDATE: newest}
    if critic is None or critic.name == SFT_CRITIC:
        systems[SUPERVISED] = supervised_system(foundry)
    if planner:
        systems[NEW_CRITIC] = System(planner.version, newest.critic)
    if critic:
        systems[NEW_PLANNER] = System(newest.planner, critic.version, critic.name)
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
        for name in AGENTS
        for row in registry.rows(name)
        if row.status != "rejected" and registry.is_complete(row.name, row.version)
    }
    evaluated = {
        System.of(event.system): event.means
        for name in AGENTS
        for event in registry.history(name)
        if event.means and set(event.system.items()) <= usable
    }
    for metric in sorted({metric for means in evaluated.values() for metric in means}):
        yield max(evaluated, key=lambda system: evaluated[system].get(metric, -inf))
