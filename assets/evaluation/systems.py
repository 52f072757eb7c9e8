"""The systems of planner and critic that may serve, which promotion decides about.

Both can be promoted alone, so every choice between newest and promoted ones is a candidate.
Candidates are compared with the system in use, and with the best ever promoted: else many small
losses, each within the margin, would add up.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product, starmap
from math import inf

from inference.backends.checkpoint.manifest import AgentRole, promoted
from inference.backends.checkpoint.promotions import AGENT_NAMES, NAMES_BY_ROLE
from training.registry import CheckpointRegistry
from warehouse import Home

from ..checkpoints import recipes
from ..core.foundry import FoundryResource
from .variants import BEST, NEW_CRITIC, NEW_PLANNER, NEWEST, PROMOTED, Variant


@dataclass(frozen=True)
class System:
    """Planner and critic, each a checkpoint `name@version`."""

    planner: str
    critic: str

    @property
    def versions(self) -> dict[str, str]:
        """Name of the checkpoint -> version."""
        return dict(each.split("@") for each in (self.planner, self.critic))

    @property
    def newest_name(self) -> str:
        """Of its variant, if it is of the newest versions."""
        return NEWEST[self.planner.partition("@")[0], self.critic.partition("@")[0]]

    def variant(self, name: str) -> Variant:
        return Variant(name, self.planner, self.critic)

    def __str__(self) -> str:
        return f"{self.planner} with {self.critic}"


def newest_system(foundry: FoundryResource) -> System:
    """The newest versions, reinforced: of the present data, else the last that were trained."""
    last = {role: names[-1] for role, names in recipes.agent_names(foundry).items()}
    return System(**{role: _newest(foundry, name) for role, name in last.items()})


def _newest(foundry: FoundryResource, name: str) -> str:
    return f"{name}@{recipes.newest_version(foundry.home, recipes.LINEAGE[name](foundry))}"


def _choices(foundry: FoundryResource, role: AgentRole, in_use: str) -> list[str]:
    """The newest checkpoints of a role that may be promoted, the last of the pipeline first.

    The supervised one is among them for as long as no reinforced one is in use.
    """
    names = recipes.agent_names(foundry)[role]
    is_reinforced = in_use.partition("@")[0] in NAMES_BY_ROLE[role][1:]
    own = names[-1:] if is_reinforced else reversed(names)
    return [_newest(foundry, name) for name in own]


def system_in_use(home: Home) -> System | None:
    """The promoted agents; None unless there are both."""
    in_use = promoted(home)
    return System(**in_use) if len(in_use) == 2 else None


def candidate_systems(foundry: FoundryResource) -> dict[str, System]:
    """Variant -> system that may be promoted, the newest first; none where that is in use.

    Only those whose versions are trained: one agent may be newer than the other.
    """
    registry, newest = CheckpointRegistry(foundry.home), newest_system(foundry)
    in_use, used = promoted(foundry.home), system_in_use(foundry.home)
    planners, critics = (_choices(foundry, r, in_use.get(r, "")) for r in ("planner", "critic"))
    systems = {each.newest_name: each for each in starmap(System, product(planners, critics))}
    if "planner" in in_use:
        systems[NEW_CRITIC] = System(in_use["planner"], newest.critic)
    if "critic" in in_use:
        systems[NEW_PLANNER] = System(newest.planner, in_use["critic"])
    distinct = {system: name for name, system in reversed(systems.items())}
    return {
        name: system
        for name, system in systems.items()
        if distinct[system] == name
        and system != used
        and all(registry.is_complete(*version) for version in system.versions.items())
    }


def reference_systems(foundry: FoundryResource) -> dict[str, System]:
    """Variant -> system that candidates are compared with; none where there are no candidates.

    The one in use, and for every metric the one with the highest mean when it was promoted.
    """
    registry, in_use = CheckpointRegistry(foundry.home), system_in_use(foundry.home)
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
        for name in AGENT_NAMES
        for row in registry.rows(name)
        if row.status != "rejected" and registry.is_complete(row.name, row.version)
    }
    evaluated = {
        _system_of(event.system): event.means
        for name in AGENT_NAMES
        for event in registry.history(name)
        if event.means and set(event.system.items()) <= usable
    }
    for metric in sorted({metric for means in evaluated.values() for metric in means}):
        yield max(evaluated, key=lambda system: evaluated[system].get(metric, -inf))


def _system_of(versions: Mapping[str, str]) -> System:
    """Of a planner's and a critic's version, by name."""
    return System(
        *(
            f"{name}@{versions[name]}"
            for names in NAMES_BY_ROLE.values()
            for name in names
            if name in versions
        )
    )
