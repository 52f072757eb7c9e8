"""Which checkpoints are in use: decisions about their versions, in a journal of the home.

Planner and critic that are promoted together are one line of it, so that nobody ever sees only one
of them in use, whatever is killed. The column `status` of the table `checkpoints` follows from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import TypeAdapter

from warehouse import Home

Action = Literal["promote", "reject", "roll_back"]
_JOURNALS, _JOURNAL = "promotions", "registry"


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
    return _history(name, _records(home))


def versions_in_use(home: Home, names: Iterable[str]) -> dict[str, str]:
    """Promoted versions by name, all of one moment; checkpoints without one are left out."""
    records = _records(home)
    stacks = {name: promoted_versions(_history(name, records)) for name in names}
    return {name: stack[-1] for name, stack in stacks.items() if stack}


def record(
    home: Home, action: Action, versions: Mapping[str, str], why: str, **evaluated: Any
) -> None:
    """Append one decision about the versions (by name) of one or more checkpoints.

    The caller has the lock of the registry. `evaluated`: `system` and `means` of an event.
    """
    content = {"action": action, "versions": versions, "at": datetime.now(UTC).isoformat()}
    with home.journal(_JOURNALS, _JOURNAL) as journal:
        journal.append({**content, "why": why, **evaluated})


def promoted_versions(events: Iterable[RegistryEvent]) -> list[str]:
    """Versions in the order in which they were put in use, without those rolled back since.

    The last one is in use. A version may occur more than once; a rollback removes all of them.
    """
    stack: list[str] = []
    for event in events:
        if event.action == "promote":
            stack.append(event.version)
        if event.action == "roll_back":
            stack = [version for version in stack if version != event.version]
    return stack


def _records(home: Home) -> list[Any]:
    return list(home.journal(_JOURNALS, _JOURNAL).records())


def _history(name: str, records: Iterable[Any]) -> list[RegistryEvent]:
    own = ({**r, "version": r["versions"][name]} for r in records if name in r["versions"])
    return [_EVENT.validate_python(content) for content in own]
