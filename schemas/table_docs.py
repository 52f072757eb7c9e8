"""The table reference, `docs/tables.md`, written from the schemas alone.

python -m schemas.table_docs > docs/tables.md
"""

import sys
import types
import typing
from collections.abc import Iterator
from datetime import datetime

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from . import TABLES
from .base import ForeignKey, Table

_KINDS: dict[object, str] = {
    str: "string",
    int: "integer",
    float: "float",
    bool: "boolean",
    datetime: "timestamp, UTC",
}

_TITLE = """\
# Tables

Every table of the lake. This page is written from `schemas/`
(`python -m schemas.table_docs > docs/tables.md`): change a description there.

Rows are Parquet files `lake/<table>/<partition>/part-0.parquet`; the partition is the shard
(`sketchbook-0000`) of tables partitioned by shard, and `all` for the others. Each file carries its
table's name and schema version and a hash of its rows, and every column its description. Ask with
`interleave sql "..."`, with `interleave_foundry.query("...")` from pandas, or open
`warehouse.duckdb` with any DuckDB client.
"""


def render_reference() -> str:
    """The page: an overview, then a section per table, in the order of the lineage."""
    sections = (_section(table) for table in TABLES.values())
    return "\n".join([_TITLE, *_overview(), "", *sections])


def _overview() -> Iterator[str]:
    yield "| table | one row is | partitions |"
    yield "|---|---|---|"
    for table in TABLES.values():
        link = f"[`{table.name}`](#{table.name})"
        yield f"| {link} | {_cell(table.description)} | {_partitions(table)} |"


def _section(table: Table) -> str:
    lines = [f"## {table.name}", "", table.description, "", *_facts(table), ""]
    lines += ["| column | type | null | what it is |", "|---|---|---|---|"]
    lines += _columns(table.columns)
    return "\n".join([*lines, "", "```sql", _example(table), "```", ""])


def _facts(table: Table) -> Iterator[str]:
    yield f"- key: {_names(table.key)}"
    yield f"- partitions: {_partitions(table)}"
    yield f"- schema version: {table.version}"
    for reference in table.references:
        yield f"- {_reference(reference)}"


def _columns(columns: dict[str, FieldInfo], prefix: str = "") -> Iterator[str]:
    """A line per column, then one per field of the rows nested in it."""
    for name, info in columns.items():
        kind, nullable = _kind(info.annotation)
        null = "yes" if nullable else ""
        yield f"| `{prefix}{name}` | {kind} | {null} | {_cell(info.description or '')} |"
        if nested := _nested(info.annotation):
            yield from _columns(nested.model_fields, f"{prefix}{name}.")


def _example(table: Table) -> str:
    """A query that counts the rows by the columns that have few values, or by partition."""
    few = [name for name, info in table.columns.items() if _is_choice(info.annotation)]
    group = few or [name for name in ("pack", "shard") if name in table.columns]
    if not group:
        return f"SELECT count(*) AS rows FROM {table.name};"
    by = ", ".join(group)
    return f"SELECT {by}, count(*) AS rows FROM {table.name} GROUP BY {by} ORDER BY rows DESC;"


def _kind(annotation: object) -> tuple[str, bool]:
    """A type in words, and whether it may be null."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = next(part for part in args if part is not type(None))
        return _kind(inner)[0], True
    if origin is typing.Literal:
        return " \\| ".join(f"`{value}`" for value in args), False
    if origin in (list, tuple):
        return f"list of {_kind(args[0])[0]}", False
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "struct", False
    return _KINDS[annotation], False


def _nested(annotation: object) -> type[BaseModel] | None:
    """The row model inside a column's type, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_nested(part) for part in typing.get_args(annotation))
    return next((model for model in found if model), None)


def _is_choice(annotation: object) -> bool:
    kinds = (annotation, *typing.get_args(annotation))
    return annotation is bool or any(typing.get_origin(kind) is typing.Literal for kind in kinds)


def _reference(reference: ForeignKey) -> str:
    table = f"[`{reference.table}`](#{reference.table})"
    return f"{_names(reference.columns)} → {table} ({_names(reference.target)})"


def _partitions(table: Table) -> str:
    return "by shard" if table.sharded else "`all`"


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def _cell(text: str) -> str:
    """Text that Markdown shows as it is, inside a table."""
    return text.replace("|", "\\|").replace("<", "\\<")


if __name__ == "__main__":
    sys.stdout.write(render_reference())
