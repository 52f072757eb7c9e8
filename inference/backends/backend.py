"""What a backend says of itself: one class in `inference/backends/<name>/backend.py`.

That class is the section of the backend in a profile. It registers itself, builds the agents of
roles, and answers what `interleave doctor` asks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, Literal, TypeVar, get_args

from schemas import FoundryError
from schemas.trajectories import Role
from schemas.yaml_config import ConfigModel
from warehouse import Home

Backends = Any  # a profile, as `factory.py` has it, which imports this file
RespondentRole = Literal["expander", "rubric_writer", "judge", "benchmark_judge"]
RESPONDENTS: tuple[Role, ...] = get_args(RespondentRole)
S = TypeVar("S", bound="type[BackendSettings]")


@dataclass(frozen=True)
class Finding:
    """The result of one check of `interleave doctor`; `fix` says what to do where it failed."""

    what: str
    fix: str | None = None

    @classmethod
    def resolved(cls, what: str, resolve: Callable[[], object]) -> "Finding":
        """Of something that is found, or a FoundryError."""
        try:
            return cls(f"{what} is {resolve()}")
        except FoundryError as error:
            return cls(what, str(error))


class BackendSettings(ConfigModel):
    """A backend's section of a profile.

    Attributes:
        backend: its name: of the section, in `roles`, and in the ledger.
        summary: describes the section.
        plays: roles that it can play.
    """

    backend: ClassVar[str]
    summary: ClassVar[str]
    plays: ClassVar[tuple[Role, ...]]

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        """The agents of some roles, one of each; heavy libraries are imported here.

        Raises `FoundryError`: something that the section names is missing, or a setting is.
        """
        raise NotImplementedError

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        """What it needs on this machine, where a profile uses it."""
        return iter(())


SECTIONS: dict[str, type[BackendSettings]] = {}


def register(section: S) -> S:
    """Decorator of a backend's class."""
    SECTIONS[section.backend] = section
    return section


def load_sections() -> dict[str, type[BackendSettings]]:
    """The class of every backend by name: of each folder beside this file."""
    package = __name__.rpartition(".")[0]
    for folder in iter_modules([str(Path(__file__).parent)], f"{package}."):
        if folder.ispkg and find_spec(f"{folder.name}.backend"):
            import_module(f"{folder.name}.backend")
    return SECTIONS


def backends_of(role: Role) -> tuple[str, ...]:
    """Names of the backends that can play a role, sorted."""
    sections = load_sections().items()
    return tuple(sorted(name for name, section in sections if role in section.plays))
