"""Which checkpoints are in use: decisions about their versions, in a journal of the home.

Planner and critic that are promoted together are one line of it, so that nobody ever sees only one
of them in use, whatever is killed. One checkpoint of a role is in use: the supervised one or the
reinforced one. The column `status` of the table `checkpoints` follows from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from schemas.training import CRITIC, PLANNER, RL_PLANNER, SFT_CRITIC
from warehouse import Home

Action = Literal["promote", "reject", "roll_back"]
NAMES_BY_ROLE: Mapping[Literal["planner", "critic"], tuple[str, ...]] = {
    "planner": (PLANNER, RL_PLANNER),
    "critic": (SFT_CRITIC, CRITIC),
}
"""The checkpoints of a role, in the order of the pipeline."""
AGENT_NAMES = tuple(chain.from_iterable(NAMES_BY_ROLE.values()))
_JOURNALS, _JOURNAL = "promotions", "registry"


class Promoted(NamedTuple):
    """A checkpoint that was put in use."""

    name: str
    version: str


@dataclass(frozen=True)
class RegistryEvent:
    """A decision about a version.

    A promotion after an evaluation has the `system` (name -> version) that was evaluated, and its
    `means` by metric.
    """

    action: Action
    version: str
    at: datetime
    why: str
    system: Mapping[str, str] = field(default_factory=dict)
    means: Mapping[str, float] = field(default_factory=dict)


_EVENT = TypeAdapter(RegistryEvent)


def history(home: Home, name: str) -> list[RegistryEvent]:
    """All decisions about versions of a checkpoint, oldest first."""
    own = [each for each in _records(home) if name in each["versions"]]
    return [_EVENT.validate_python({**each, "version": each["versions"][name]}) for each in own]


def versions_in_use(home: Home, names: Iterable[str]) -> dict[str, str]:
    """Promoted versions by name, all of one moment; checkpoints without one are left out."""
    records = _records(home)
    last = [each for name in names for each in _stack(name, records)[-1:] if each.name == name]
    return {each.name: each.version for each in last}


def record(
    home: Home, action: Action, versions: Mapping[str, str], why: str, **evaluated: Any
) -> None:
    """Append one decision about the versions (by name) of one or more checkpoints.

    The caller has the lock of the registry. `evaluated`: `system` and `means` of an event.
    """
    content = {"action": action, "versions": versions, "at": datetime.now(UTC).isoformat()}
    with home.journal(_JOURNALS, _JOURNAL) as journal:
        journal.append({**content, "why": why, **evaluated})


def names_of_role(name: str) -> tuple[str, ...]:
    """The checkpoints that play the role of one, itself included."""
    return next((names for names in NAMES_BY_ROLE.values() if name in names), (name,))


def promoted_in_order(home: Home, name: str) -> list[Promoted]:
    """What was put in use of a checkpoint's role, in that order, without what was rolled back.

    The last one is in use. One may occur more than once; a rollback removes all of them.
    """
    return _stack(name, _records(home))


def _stack(name: str, records: Iterable[Any]) -> list[Promoted]:
    names, stack = names_of_role(name), list[Promoted]()
    for content in records:
        decided = [Promoted(*each) for each in content["versions"].items() if each[0] in names]
        if content["action"] == "promote":
            stack += decided
        if content["action"] == "roll_back":
            stack = [each for each in stack if each not in decided]
    return stack


def _records(home: Home) -> list[Any]:
    return list(home.journal(_JOURNALS, _JOURNAL).records())
