"""What the assets of the lineage have in common, so that their functions say only what is special.

A `Node` names the tables an asset writes, what it depends on and the profile sections that steer
it. From it follow Dagster's metadata (column schemas, lineage, kinds, pools), the record of a
materialization, and its fingerprint: equal fingerprints mean there is nothing to do again.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

import dagster as dg
import orjson

from schemas import Table

from .foundry import SHARDS, FoundryResource
from .profile import Profile

OWNERS = ["team:interleave-foundry"]
FINGERPRINT = "interleave/fingerprint"
DATA_VERSION_TAG = "dagster/data_version"
# Aggregates wait for every shard of what they read, and for its blocking checks.
FOLLOW_UPSTREAM = (
    dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()
).with_label("upstream complete and checked")


@dataclass(frozen=True)
class Partitions:
    """Partitions of an asset that are not shards of the told pack.

    Args:
        names: those that there should be, as things stand.
        origin: what one of them is made from, beside code, settings and inputs.
    """

    definition: dg.DynamicPartitionsDefinition
    names: Callable[[FoundryResource], list[str]]
    origin: Callable[[FoundryResource, str], object]

    def register(self, foundry: FoundryResource, instance: dg.DagsterInstance) -> list[str]:
        """Make Dagster know those that there should be; their names."""
        names = self.names(foundry)
        instance.add_dynamic_partitions(str(self.definition.name), names)
        return names


@dataclass(frozen=True)
class Node:
    """An asset of the lineage. `tables[0]` is its main table, of which rows are counted; a profile
    may leave out others.

    `sections` are dotted paths into the profile; a profile that leaves one out (null) leaves out
    the node; one that `may_be_empty` is made all the same, with nothing in it, so that what depends
    on it can be made in the UI without a warning. `ledger` tables are shared with other assets;
    `facts` are what its content follows from beside code, settings and inputs; `holds` tells what
    it made where that is not whole tables. `optional` nodes are made when they are selected by
    name. A node is `sharded`, or has `partitions` of its own, or neither.
    """

    name: str
    group: str
    description: str
    tables: tuple[Table, ...] = ()
    deps: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    sharded: bool = False
    automatic: bool = False
    pool: str | None = None
    kinds: frozenset[str] = frozenset({"python", "parquet"})
    code_version: str = "1"
    ledger: tuple[Table, ...] = ()
    facts: Callable[[FoundryResource, dg.DagsterInstance], object] | None = None
    holds: Callable[[FoundryResource], list[str | None]] | None = None
    optional: bool = False
    may_be_empty: bool = False
    partitions: Partitions | None = None

    @property
    def partitioned(self) -> bool:
        """Whether a run makes a part of it."""
        return self.sharded or self.partitions is not None

    def lacking(self, profile: Profile) -> list[str]:
        """The sections that steer the node and that a profile does not have."""
        settings = profile.model_dump(mode="json")
        return [section for section in self.sections if _setting(settings, section) is None]

    def in_profile(self, profile: Profile) -> bool:
        """Whether a profile has every section that steers the node."""
        return not self.lacking(profile)

    def can_be_made(self, profile: Profile) -> bool:
        """Whether a profile makes it, be it empty."""
        return self.may_be_empty or self.in_profile(profile)

    def asset_args(self) -> dict[str, Any]:
        """Arguments for `@dg.asset`."""
        return {
            "name": self.name,
            "group_name": self.group,
            "description": self.description,
            "deps": list(self.deps),
            "partitions_def": self._partitions_def(),
            "automation_condition": FOLLOW_UPSTREAM if self.automatic else None,
            "pool": self.pool,
            "kinds": set(self.kinds),
            "owners": OWNERS,
            "tags": {"interleave/stage": self.group},
            "code_version": self.code_version,
            "metadata": self._definition_metadata(),
        }

    def fingerprint(
        self, foundry: FoundryResource, instance: dg.DagsterInstance, shard: str | None
    ) -> str:
        """Hash of everything the asset's content follows from; fits a Dagster tag.

        What the profile leaves out is no input.
        """
        settings = foundry.settings.model_dump(mode="json")
        inputs = [dep for dep in self.deps if NODES[dep].in_profile(foundry.settings)]
        origin = {
            "code": self.code_version,
            "settings": {section: _setting(settings, section) for section in self.sections},
            "inputs": {dep: NODES[dep].content(foundry, shard) for dep in inputs},
            "facts": self.facts(foundry, instance) if self.facts else None,
        }
        if self.partitions and shard:
            origin["partition"] = self.partitions.origin(foundry, shard)
        return _digest(origin)[:32]

    def content(self, foundry: FoundryResource, shard: str | None) -> list[str | None]:
        """Content hashes of the tables written, of one shard or of all partitions."""
        if self.holds:
            return self.holds(foundry)
        lake = foundry.home.lake
        hashes = (
            lake.content_hash(table, partition)
            for table in self.tables
            for partition in ([shard] if table.sharded and shard else lake.partitions(table))
        )
        return [found for found in hashes if found]

    def data_version(self, foundry: FoundryResource, shard: str | None) -> str:
        """Hash of what is stored for the asset now: another one when a file is lost or damaged."""
        return _digest(self.content(foundry, shard))[:16]

    def record(
        self,
        context: dg.AssetExecutionContext,
        foundry: FoundryResource,
        tables: Mapping[Table, Any],
        metadata: Mapping[str, Any],
        fingerprint: str | None = None,
    ) -> dg.MaterializeResult:
        """Write the tables and describe the materialization to Dagster.

        Args:
            fingerprint: that of the beginning, where what it was made from may have changed since.
        """
        shard = context.partition_key if self.partitioned else None
        rows = {
            table.name: foundry.home.lake.write(table, data, self._partition(table, shard)).rows
            for table, data in tables.items()
        }
        return self.describe(context, foundry, rows, metadata, fingerprint)

    def describe(
        self,
        context: dg.AssetExecutionContext,
        foundry: FoundryResource,
        rows: Mapping[str, int],
        metadata: Mapping[str, Any],
        fingerprint: str | None = None,
    ) -> dg.MaterializeResult:
        """The result of a materialization whose tables (name -> rows) are in the lake already."""
        shard = context.partition_key if self.partitioned else None
        counts = {f"rows/{name}": count for name, count in rows.items()}
        if self.tables:
            counts["dagster/row_count"] = rows[self.tables[0].name]
        return dg.MaterializeResult(
            metadata={**counts, **self._column_lineage(), **metadata},
            data_version=dg.DataVersion(self.data_version(foundry, shard)),
            tags={FINGERPRINT: fingerprint or self.fingerprint(foundry, context.instance, shard)},
        )

    def _partition(self, table: Table, shard: str | None) -> str:
        """Ledger tables are written by several assets, so each has partitions of its own."""
        partition = shard or "all"
        return f"{self.name}-{partition}" if table in self.ledger else partition

    def _partitions_def(self) -> dg.DynamicPartitionsDefinition | None:
        if self.partitions:
            return self.partitions.definition
        return SHARDS if self.sharded else None

    def _definition_metadata(self) -> dict[str, Any]:
        if not self.tables:
            return {}
        return {
            "dagster/column_schema": column_schema(self.tables[0]),
            "dagster/table_name": self.tables[0].name,
        }

    def _column_lineage(self) -> dict[str, Any]:
        """A column comes from the upstream columns of the same name."""
        if not self.tables:
            return {}
        columns = {
            column: [
                dg.TableColumnDep(dg.AssetKey(dep), column)
                for dep in self.deps
                if NODES[dep].tables and column in NODES[dep].tables[0].columns
            ]
            for column in self.tables[0].columns
        }
        known = {column: deps for column, deps in columns.items() if deps}
        return {"dagster/column_lineage": dg.TableColumnLineage(known)} if known else {}


NODES: dict[str, Node] = {}


def node(**facts: Any) -> Node:
    """Declare a node and register it under its name."""
    declared = Node(**facts)
    NODES[declared.name] = declared
    return declared


def lineage() -> list[Node]:
    """All declared nodes, every one after those it depends on."""
    order = TopologicalSorter({name: declared.deps for name, declared in NODES.items()})
    return [NODES[name] for name in order.static_order()]


def column_schema(table: Table) -> dg.TableSchema:
    """A table's columns, types and descriptions as Dagster shows them."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=column.name,
                type=str(column.type),
                description=table.columns[column.name].description,
                constraints=dg.TableColumnConstraints(
                    nullable=column.nullable, unique=table.key == (column.name,)
                ),
            )
            for column in table.arrow_schema
        ]
    )


def sample(rows: Sequence[Mapping[str, object]]) -> dg.MetadataValue:
    """A handful of rows as a Markdown table."""
    if not rows:
        return dg.MetadataValue.md("*no rows*")
    header = list(rows[0])
    lines = [header, ["---"] * len(header), *([_cell(row[c]) for c in header] for row in rows)]
    return dg.MetadataValue.md("\n".join(f"| {' | '.join(line)} |" for line in lines))


def picture(png: bytes, alt: str) -> dg.MetadataValue:
    """A picture inside the metadata, for the UI to show."""
    from .plotting import as_markdown

    return dg.MetadataValue.md(as_markdown(png, alt))


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _setting(settings: Mapping[str, Any], section: str) -> Any:
    """A part of a profile by its dotted path; None when it, or what it is in, is left out."""
    value: Any = settings
    for key in section.split("."):
        value = value[key] if value is not None else None
    return value


def _digest(facts: object) -> str:
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()
