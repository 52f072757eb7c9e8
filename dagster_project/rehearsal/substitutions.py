"""What a rehearsal sets otherwise than the profile, and why."""

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["model", "size", "gpu"]
Values = dict[str, Any]

SIDE = 128  # of pictures, in pixels


@dataclass(frozen=True)
class Substitution:
    """A setting that a rehearsal changes.

    Args:
        kind: model: another model or server; size: less of the same; gpu: only a GPU, or more
            machines, can show it.
    """

    path: str
    before: str
    after: str
    kind: Kind


@dataclass
class Rewriter:
    """A profile's values, which are changed in place; every change is recorded."""

    values: Values = field(default_factory=dict)
    substitutions: list[Substitution] = field(default_factory=list)

    def section(self, path: str) -> Values:
        section: Values = self.values
        for name in path.split("."):
            section = section[name]
        return section

    def set(self, path: str, name: str, value: Any, kind: Kind) -> None:
        section = self.section(path)
        if (before := section.get(name)) != value:
            self.record(f"{path}.{name}", before, value, kind)
            section[name] = value

    def lower(self, path: str, name: str, most: int) -> None:
        if self.section(path)[name] > most:
            self.set(path, name, most, "size")

    def record(self, path: str, before: object, after: object, kind: Kind) -> None:
        new = Substitution(path, str(before), str(after), kind)
        if new not in self.substitutions:
            self.substitutions.append(new)
