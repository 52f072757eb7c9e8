"""Blocking Dagster checks from rules: one multi-check per asset, each rule with its violations.

A check of a partitioned asset has a result for each partition; executed without one, it reads the
whole table. A rule returns at most `MAX_ROWS` rows that violate it, as dictionaries (damaged
images: all); if there are none, it holds.
"""

import atexit
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import islice

import dagster as dg
import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from schemas import TABLES, BadImageError, Table
from schemas.base import ForeignKey
from warehouse import ImageStore

from .foundry import FoundryResource
from .metadata import table_metadata
from .node import Node

Violations = list[dict[str, object]]
MAX_ROWS = 5
Rule = Callable[[FoundryResource, str | None], Violations]
warnings.filterwarnings("ignore", ".*partitions_def on an AssetCheckSpec", dg.PreviewWarning)


def blocking_checks(node: Node, **rules: tuple[str, Rule]) -> dg.AssetChecksDefinition:
    """Key and reference checks of a node's tables, and its own rules, each with a description."""
    all_rules: dict[str, tuple[str, Rule]] = {
        "keys_unique": ("Every key occurs once", partial(_duplicates, node)),
        "references_hold": ("Every row that a row refers to exists", partial(_dangling_rows, node)),
        **rules,
    }
    specs = [
        dg.AssetCheckSpec(
            name,
            asset=node.name,
            blocking=True,
            description=description,
            partitions_def=node.partitions_def,
        )
        for name, (description, _) in all_rules.items()
    ]

    # `can_subset`: a single check can be executed again from the UI.
    @dg.multi_asset_check(name=f"{node.name}_checks", specs=specs, can_subset=True)
    def checks(
        context: dg.AssetCheckExecutionContext, foundry: FoundryResource
    ) -> Iterator[dg.AssetCheckResult]:
        partitioned = node.is_partitioned and context.has_partition_key
        partition = context.partition_key if partitioned else None
        selected = {key.name for key in context.selected_asset_check_keys}
        for name, (_, rule) in all_rules.items():
            if name in selected:
                violations = rule(foundry, partition)
                metadata = {"broken": table_metadata(violations)} if violations else {}
                yield dg.AssetCheckResult(
                    passed=not violations, asset_key=node.name, check_name=name, metadata=metadata
                )

    return checks


def _duplicates(node: Node, foundry: FoundryResource, shard: str | None) -> Violations:
    partitions, lake = [shard] if shard else None, foundry.home.lake
    keys = (lake.read(table, partitions, columns=list(table.key)) for table in node.tables)
    return [row for data in keys for row in repeated_rows(data)]


def _dangling_rows(node: Node, foundry: FoundryResource, shard: str | None) -> Violations:
    lake, partitions = foundry.home.lake, [shard] if shard else None
    violations: Violations = []
    for table, reference in [(each, ref) for each in node.tables for ref in each.references]:
        parent = TABLES[reference.table]
        data = lake.read(table, partitions, list(reference.columns))
        parents = lake.read(parent, partitions if parent.sharded else None, reference.target)
        query = _dangling(reference, "data", "parents")
        violations += find_rows(query, data=data, parents=parents)
    return violations


def find_rows(query: str, **tables: pa.Table) -> Violations:
    """Rows of a DuckDB query over the tables, ordered by all columns."""
    with _empty_database().cursor() as connection:
        for name, data in tables.items():
            connection.register(name, data)
        return first_rows(connection, query)


@cache
def _empty_database() -> duckdb.DuckDBPyConnection:
    """Opened once in a process: that takes longer than most checks."""
    atexit.register(_empty_database.cache_clear)  # what is left at the end is a leak to DuckDB
    return duckdb.connect()


def first_rows(connection: duckdb.DuckDBPyConnection, query: str) -> Violations:
    return connection.sql(f"{query} order by all limit {MAX_ROWS}").to_arrow_table().to_pylist()


def repeated_rows(data: pa.Table) -> Violations:
    return find_rows(_repeated("data", data.column_names), data=data)


def broken_tables(connection: duckdb.DuckDBPyConnection, tables: Iterable[Table]) -> Violations:
    """Repeated keys and dangling references of whole tables, by the views of a connection."""
    queries = [
        query
        for table in tables
        for query in (
            _repeated(table.name, table.key),
            *(_dangling(each, table.name, each.table) for each in table.references),
        )
    ]
    return [row for query in queries for row in first_rows(connection, query)]


def _repeated(name: str, columns: Sequence[str]) -> str:
    listed = ", ".join(columns)
    return f"select {listed}, count(*) as copies from {name} group by all having count(*) > 1"


def _dangling(reference: ForeignKey, name: str, parent: str) -> str:
    columns = ", ".join(reference.columns)
    pairs = zip(reference.target, reference.columns, strict=True)
    targets = ", ".join(f"{target} as {column}" for target, column in pairs)
    known = " and ".join(f"{column} is not null" for column in reference.columns)
    return (
        f"select distinct '{reference.table}' as missing_in, {columns} from {name} "
        f"anti join (select {targets} from {parent}) using ({columns}) where {known}"
    )


def damaged_images(images: ImageStore, names: Iterable[str]) -> Violations:
    """Images that are not in the store, or whose bytes do not hash to their name."""
    violations: Violations = []
    for name in sorted(set(names)):
        try:
            images.get(name)
        except BadImageError as error:
            violations.append({"image": name, "problem": str(error)})
    return violations


def missing_images(images: ImageStore, names: Iterable[str]) -> Violations:
    missing = (name for name in sorted(set(names)) if not images.exists(name))
    return [{"image": name} for name in islice(missing, MAX_ROWS)]


def distinct_strings(data: pa.Table) -> Iterator[str]:
    """Strings in string and list-of-string columns, without nulls; distinct per column."""
    for column in data.columns:
        flat = pc.list_flatten(column) if pa.types.is_list(column.type) else column
        yield from set(flat.drop_null().to_pylist())
