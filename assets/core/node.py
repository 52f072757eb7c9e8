"""Declarations of assets, from which Dagster's definitions, records and fingerprints follow.

A `Node` names the tables an asset writes, what it depends on and the profile sections that steer
it. What it follows from besides data is its code version, which Dagster compares; the fingerprint
adds the data. Equal fingerprints mean that the asset need not be materialized again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, TypeVar

import dagster as dg

from inference.calls.hashing import content_digest
from schemas import Table

from .foundry import SHARDS, FoundryResource
from .metadata import column_schema
from .profile import Profile

# Tags of a materialization, which are compared with those of earlier runs.
FINGERPRINT = "interleave/fingerprint"
DATA_VERSION_TAG = "dagster/data_version"
CODE_VERSION_TAG = "dagster/code_version"
# The groups that lead from a pack to promoted agents, in their order; the others are beside them.
MAIN_LINE = ("prompts", "trajectories", "data_sets", "checkpoints", "evaluation")
LINE = "interleave/line"  # tag of an asset: main or optional


@dataclass(frozen=True)
class Partitions:
    """Partitions of an asset that are not shards of the profile's pack.

    `names` are those that the current inputs make; `origin` is what a partition's content follows
    from, as JSON data, and part of its fingerprint.
    """

    definition: dg.DynamicPartitionsDefinition
    names: Callable[[FoundryResource], list[str]]
    origin: Callable[[FoundryResource, str], object]

    def register(self, foundry: FoundryResource, instance: dg.DagsterInstance) -> list[str]:
        """Add the current partitions to the instance; returns their names."""
        names = self.names(foundry)
        instance.add_dynamic_partitions(str(self.definition.name), names)
        return names


NODES: dict[str, "Node"] = {}
Name = TypeVar("Name", str, str | None)  # of a partition; None: of all


@dataclass(frozen=True)
class Node:
    """An asset of the lineage: unpartitioned, `sharded`, or with `partitions` of its own.

    Registers itself in `NODES` under its name. A profile that lacks one of its sections has no such
    asset or, if it `may_be_empty`, one without rows, so that the UI does not warn of what follows.
    """

    name: str
    group: str
    description: str = ""  # in Dagster, what a row of the first table is comes after it
    tables: tuple[Table, ...] = ()  # rows of the first are counted
    deps: tuple[str, ...] = ()  # whose tables, files or versions it reads
    # Of `deps`, those that the others come through: the graph shows no more; empty: all.
    arrows: tuple[str, ...] = ()
    optional_deps: tuple[str, ...] = ()  # of `deps`, those it does not wait for
    sections: tuple[str, ...] = ()  # dotted paths into the profile
    sharded: bool = False
    automatic: bool = False
    pool: str | None = None
    kinds: frozenset[str] = frozenset({"python", "parquet"})
    format_version: int = 1  # of the code: raised when it makes other rows of the same
    ledger: tuple[Table, ...] = ()  # shared with other assets, each in partitions of its own
    # What its content follows from besides code and settings, and no run changes: models, versions
    # of agent prompts, files of packs.
    config: Callable[[FoundryResource], object] | None = None
    # What it follows from besides that and its dependencies.
    inputs: Callable[[FoundryResource, dg.DagsterInstance], object] | None = None
    # What only some shards follow from: those that it leaves out follow from nothing else.
    shard_inputs: Callable[[FoundryResource, Sequence[str]], Mapping[str, object]] | None = None
    # Hashes of what it stored, where that is not its tables' partitions.
    output_hashes: Callable[[FoundryResource], list[str | None]] | None = None
    optional: bool = False  # materialized only when selected by name
    may_be_empty: bool = False
    partitions: Partitions | None = None

    def __post_init__(self) -> None:
        NODES[self.name] = self

    @property
    def partitions_def(self) -> dg.DynamicPartitionsDefinition | None:
        own = self.partitions.definition if self.partitions else None
        return SHARDS if self.sharded else own

    @property
    def is_partitioned(self) -> bool:
        return self.partitions_def is not None

    def label(self, partition: str | None) -> str:
        """Such as `steps`, or `plans[sketchbook-0000]`."""
        return f"{self.name}[{partition}]" if partition else self.name

    def missing_sections(self, profile: Profile) -> list[str]:
        """Sections of the node that a profile leaves out."""
        return [section for section in self.sections if _setting(profile, section) is None]

    def in_profile(self, profile: Profile) -> bool:
        return not self.missing_sections(profile)

    def is_enabled(self, profile: Profile) -> bool:
        """Whether a profile materializes the node, be it without rows."""
        return self.may_be_empty or self.in_profile(profile)

    def asset_args(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        description = self.description
        if self.tables:
            schema, name = column_schema(self.tables[0]), self.tables[0].name
            metadata = {"dagster/column_schema": schema, "dagster/table_name": name}
            row, *_ = self.tables[0].description.rstrip(".").split(". ")
            description = f"{description} One row: {row[0].lower()}{row[1:]}.".lstrip()
        return {
            "name": self.name,
            "group_name": self.group,
            "description": description,
            "deps": list(self.arrows or self.deps),
            "partitions_def": self.partitions_def,
            "pool": self.pool,
            "kinds": set(self.kinds),
            "owners": ["team:interleave-foundry"],
            "tags": {LINE: "main" if self.group in MAIN_LINE else "optional"},
            "metadata": metadata,
        }

    def code_version(self, foundry: FoundryResource) -> str:
        """Hash (16 hex digits) of the format version, the node's settings and its `config`."""
        settings = foundry.settings
        parts = {
            "format": self.format_version,
            "settings": {section: _setting(settings, section) for section in self.sections},
            "config": self.config(foundry) if self.config and self.in_profile(settings) else None,
        }
        return content_digest(parts)[:16]

    def fingerprint(
        self, foundry: FoundryResource, instance: dg.DagsterInstance, partition: str | None
    ) -> str:
        """Hash (32 hex digits) of code version, `inputs`, and dependencies in the profile."""
        return self.fingerprints(foundry, instance, [partition])[partition]

    def fingerprints(
        self, foundry: FoundryResource, instance: dg.DagsterInstance, partitions: Sequence[Name]
    ) -> dict[Name, str]:
        """`fingerprint` of each partition; what they share is computed once."""
        deps = [dep for dep in self.deps if NODES[dep].in_profile(foundry.settings)]
        contents = {dep: NODES[dep].contents(foundry, partitions) for dep in deps}
        own = self._of_partitions(foundry, [name for name in partitions if name is not None])
        origin = {
            "code": self.code_version(foundry),
            "facts": self.inputs(foundry, instance) if self.inputs else None,
        }

        def digest(name: Name) -> str:
            inputs = {dep: contents[dep][name] for dep in deps}
            partition = {"partition": own[name]} if name is not None and name in own else {}
            return content_digest({**origin, "inputs": inputs, **partition})[:32]

        return {name: digest(name) for name in partitions}

    def _of_partitions(
        self, foundry: FoundryResource, names: Sequence[str]
    ) -> Mapping[str, object]:
        """What each partition alone follows from, of those that follow from something alone."""
        if self.partitions:
            return {name: self.partitions.origin(foundry, name) for name in names}
        return self.shard_inputs(foundry, names) if self.shard_inputs else {}

    def contents(
        self, foundry: FoundryResource, partitions: Sequence[Name]
    ) -> dict[Name, list[str | None]]:
        """Content hashes of what is stored, by shard; None: of all partitions."""
        if self.output_hashes:
            return dict.fromkeys(partitions, self.output_hashes(foundry))
        found: dict[Name, list[str | None]] = {name: [] for name in partitions}
        for table in self.tables:
            hashes = foundry.home.lake.content_hashes(table)
            for name, content in found.items():
                if name is None or not table.sharded:
                    content += hashes.values()
                elif name in hashes:
                    content.append(hashes[name])
        return found

    def data_version(self, foundry: FoundryResource, partition: str | None) -> str:
        """Hash of what is stored now; changes when a file is lost or damaged."""
        return self.data_versions(foundry, [partition])[partition]

    def data_versions(
        self, foundry: FoundryResource, partitions: Sequence[Name]
    ) -> dict[Name, str]:
        """`data_version` of each partition."""
        contents = self.contents(foundry, partitions)
        return {name: content_digest(content)[:16] for name, content in contents.items()}

    def record(
        self,
        context: dg.AssetExecutionContext,
        foundry: FoundryResource,
        tables: Mapping[Table, Any],
        metadata: Mapping[str, Any],
        fingerprint: str | None = None,
    ) -> dg.MaterializeResult:
        """`write` the tables and `describe` the materialization."""
        rows = self.write(context, foundry, tables)
        return self.describe(context, foundry, rows, metadata, fingerprint)

    def write(
        self,
        context: dg.AssetExecutionContext,
        foundry: FoundryResource,
        tables: Mapping[Table, Any],
    ) -> dict[str, int]:
        """Write the tables, in the partition of the run; returns the rows of each by name."""
        name = context.partition_key if self.is_partitioned else "all"
        partitions = {t: f"{self.name}-{name}" if t in self.ledger else name for t in tables}
        lake = foundry.home.lake
        return {t.name: lake.write(t, rows, partitions[t]).rows for t, rows in tables.items()}

    def describe(
        self,
        context: dg.AssetExecutionContext,
        foundry: FoundryResource,
        rows: Mapping[str, int],
        metadata: Mapping[str, Any],
        fingerprint: str | None = None,
    ) -> dg.MaterializeResult:
        """What Dagster stores of a materialization whose tables (name -> rows) are written.

        Where inputs may change during the run, `fingerprint` is the one computed at its start.
        """
        partition = context.partition_key if self.is_partitioned else None
        counts = {f"rows/{name}": count for name, count in rows.items()}
        if self.tables:
            counts["dagster/row_count"] = rows[self.tables[0].name]
        fingerprint = fingerprint or self.fingerprint(foundry, context.instance, partition)
        return dg.MaterializeResult(
            # In the order in which Dagster shows them: what the asset has to say comes first.
            metadata={**metadata, **counts, **self._column_lineage()},
            data_version=dg.DataVersion(self.data_version(foundry, partition)),
            tags={FINGERPRINT: fingerprint},
        )

    def _column_lineage(self) -> dict[str, Any]:
        """A column comes from the upstream columns of the same name."""
        upstream = {dep: NODES[dep].tables[0].columns for dep in self.deps if NODES[dep].tables}
        lineage = {
            column: [dg.TableColumnDep(dg.AssetKey(dep), column) for dep in deps]
            for column in (self.tables[0].columns if self.tables else ())
            if (deps := [dep for dep, columns in upstream.items() if column in columns])
        }
        return {"dagster/column_lineage": dg.TableColumnLineage(lineage)} if lineage else {}


def lineage() -> list[Node]:
    """All declared nodes, every one after those it depends on."""
    order = TopologicalSorter({name: declared.deps for name, declared in NODES.items()})
    return [NODES[name] for name in order.static_order()]


def _setting(profile: Profile, section: str) -> Any:
    """A part of a profile by its dotted path; None when it, or what it is in, is left out."""
    value: Any = profile
    for key in section.split("."):
        value = getattr(value, key) if value is not None else None
    return value
