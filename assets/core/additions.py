"""What components add to every profile: entries of its sections.

A component is a file `dagster_project/defs/**/NAME/defs.yaml`. Profiles read these files, and the
classes of `dagster_project/components.py` have the same attributes, so that commands, the service
and the code location agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pydantic import Field, PositiveInt, ValidationError

from inference.servers.settings import Server
from schemas import DocumentError
from schemas.errors import first_problem
from schemas.yaml_config import ConfigModel, read_documents

from ..benchmarks.settings import BenchmarkRunSettings
from ..imports.settings import ImportSettings

DEFS = Path(__file__).parents[2] / "dagster_project" / "defs"
_MODULE = "dagster_project.components"
Settings = TypeVar("Settings")


class Attributes(ConfigModel, Generic[Settings]):
    """Attributes of a component: it brings an entry, or names the profile's."""

    # Not `Settings | None`: `dg check yaml` then names the wrong setting.
    settings: Settings = Field(
        cast(Any, None), description="The entry that it brings; left out: the profile has it"
    )


class PackSettings(ConfigModel):
    """How much is made of a prompt pack, which is the folder of its `defs.yaml`."""

    shards: PositiveInt = Field(1, description="Shards of its prompts")


class Kind(NamedTuple):
    """A class of components.

    Args:
        section: of the profile, whose entry has the component's name; a dotted path.
        readers: names of the assets that read the entry.
    """

    attributes: type[Attributes[Any]]
    section: str
    readers: tuple[str, ...] = ()


_PACKS = Kind(Attributes[PackSettings], "banks", ("taxonomy", "vocabulary", "templates"))
KINDS = {
    "PackComponent": _PACKS,
    "BenchmarkComponent": Kind(
        Attributes[BenchmarkRunSettings], "benchmarks.run", ("benchmark_answers",)
    ),
    "ServerComponent": Kind(Attributes[Server], "servers"),
    "ImportComponent": Kind(Attributes[ImportSettings], "imports", ("imports",)),
}


@dataclass(frozen=True)
class Addition:
    """A component of one of the kinds: its `defs.yaml`, whose folder has its name."""

    file: Path
    kind: Kind
    settings: Any

    @property
    def name(self) -> str:
        return self.file.parent.name

    @property
    def path(self) -> str:
        """Of its entry in the profile."""
        return f"{self.kind.section}.{self.name}"

    @property
    def asset_key(self) -> list[str]:
        return [self.kind.section.split(".")[0], self.name]

    @property
    def is_pack(self) -> bool:
        return self.kind is _PACKS

    @property
    def entry(self) -> Any:
        """What it brings, as YAML's data; None: nothing."""
        if self.settings is None or self.is_pack:
            return self.settings and self.settings.shards
        return self.settings.model_dump(mode="json", exclude_unset=True)

    def is_in(self, profile: Mapping[str, Any]) -> bool:
        """Whether a profile (YAML's data) has its entry."""
        names = list(value_at(profile, *self.kind.section.split(".")) or ())
        if self.is_pack:  # may be named by its folder
            names = [Path(str(name)).name for name in (profile.get("pack"), *names)]
        return self.name in names


def additions() -> list[Addition]:
    """The components of the project, by file; DocumentError: one is invalid."""
    kinds = {f"{_MODULE}.{name}": kind for name, kind in KINDS.items()}
    found = []
    for path in sorted(DEFS.rglob("defs.y*ml")):
        for document in read_documents(path):
            if isinstance(document, dict) and (kind := kinds.get(str(document.get("type")))):
                try:
                    given = kind.attributes.model_validate(document.get("attributes") or {})
                except ValidationError as error:
                    raise DocumentError(f"{path}: {first_problem(error, 'attributes')}") from error
                found.append(Addition(path, kind, given.settings))
    return found


def with_additions(profile: dict[str, Any]) -> dict[str, Any]:
    """A profile (YAML's data) with the entries that components bring.

    Raises:
        ValueError: a component brings what is there already, or names what is not.
    """
    owners: dict[str, Path] = {}
    for each in additions():
        is_there, entry = each.is_in(profile), each.entry
        if is_there and entry is not None:
            owner = owners.get(each.path, "the profile")
            raise ValueError(f"{each.file} brings `{each.path}`, and so does {owner}: remove one")
        if not is_there and entry is None:
            raise ValueError(
                f"{each.file} names `{each.path}`, which the profile lacks: add it there, or "
                "give the component its `settings`"
            )
        if entry is not None:
            owners[each.path] = each.file
            profile = merged(profile, nested(entry, *each.kind.section.split("."), each.name))
    return profile


def value_at(values: Any, *keys: str) -> Any:
    """What is at a path of nested dictionaries; None: nothing."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def nested(value: Any, *keys: str) -> Any:
    """Nested dictionaries with a value at a path."""
    for key in reversed(keys):
        value = {key: value}
    return value


def merged(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Settings with changes, key by key."""
    inner = {
        key: merged(settings[key], value)
        for key, value in changes.items()
        if isinstance(value, dict) and isinstance(settings.get(key), dict)
    }
    return {**settings, **changes, **inner}
