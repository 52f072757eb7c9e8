"""Which nodes `interleave run` brings up to date, and in which order."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from assets.core.node import Node, lineage
from assets.core.profile import Profile
from schemas import FoundryError


class Stages(NamedTuple):
    """Nodes by when they run, each list in lineage order; a stage reads what earlier ones made."""

    bank: list[Node]
    shards: list[Node]
    aggregates: list[Node]
    base: list[Node]
    agents: list[list[Node]]  # planner's and critic's: no list reads what another one makes
    judging: list[Node]
    answering: list[Node]  # users' requests, each node in partitions of its own


def selected(names: Sequence[str], profile: Profile) -> list[Node]:
    """The named nodes; without names, those of the profile that are not optional.

    Raises:
        FoundryError: there is no such node, or the profile lacks a section that it needs.
    """
    nodes = lineage()
    known = [node.name for node in nodes]
    if unknown := sorted(set(names) - set(known)):
        raise FoundryError(f"no asset named {', '.join(unknown)}; there are: {', '.join(known)}")
    if not names:
        return [node for node in nodes if not node.optional and node.can_be_made(profile)]
    chosen = [node for node in nodes if node.name in names]
    for node in chosen:
        _require_sections(node, profile)
    return chosen


def stages_of(nodes: Sequence[Node]) -> Stages:
    """Before the shards comes what they are made from, after them everything else."""
    before = _before_shards()
    after = [node for node in nodes if not node.partitioned and node.name not in before]
    trained = _from_training(after)
    base, agents = _checkpoints()
    return Stages(
        bank=[node for node in nodes if not node.partitioned and node.name in before],
        shards=[node for node in nodes if node.sharded],
        aggregates=[node for node in after if node.name not in trained],
        base=[node for node in after if node.name in base],
        agents=_apart([node for node in after if node.name in agents]),
        judging=[node for node in after if node.name in trained - base - agents],
        answering=[node for node in nodes if node.partitions],
    )


def _before_shards() -> set[str]:
    """Names of the nodes that sharded ones depend on, however far up."""
    names: set[str] = set()
    for node in reversed(lineage()):
        if node.sharded or node.name in names:
            names |= set(node.deps)
    return names


def _from_training(after: Sequence[Node]) -> set[str]:
    """Names of what does not follow the data by itself, and of all that depends on it."""
    names: set[str] = set()
    for node in after:
        if not node.automatic or names & set(node.deps):
            names.add(node.name)
    return names


def _checkpoints() -> tuple[set[str], set[str]]:
    """Names of the checkpoints that start from none, and of those that start from one."""
    # Promotion, in the same group, trains nothing.
    nodes = [node for node in lineage() if node.group == "checkpoints" and node.pool]
    names = {node.name for node in nodes}
    agents = {node.name for node in nodes if names & set(node.deps)}
    return names - agents, agents


def _apart(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes in lists of which none depends on another, each in lineage order."""
    lists: list[list[Node]] = []
    for node in nodes:
        above = [one for one in lists if {n.name for n in one} & set(node.deps)]
        lists = [one for one in lists if one not in above]
        lists.append([*chain.from_iterable(above), node])
    return lists


def _require_sections(node: Node, profile: Profile) -> None:
    if not node.can_be_made(profile):
        sections = node.lacking(profile)
        raise FoundryError(
            f"profile {profile.name} has no section {' and '.join(sections)}, which "
            f"{node.name} needs: add it, or use a profile that has it"
        )
