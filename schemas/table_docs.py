"""The table reference, `docs/tables.md`, generated from the schemas.

python -m schemas.table_docs > docs/tables.md
"""

import sys
import typing
from collections.abc import Iterator
from datetime import date, datetime

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from . import TABLES, VIEWS
from .base import Table, View, unwrap_optional

_TYPE_NAMES: dict[object, str] = {
    str: "string",
    int: "integer",
    float: "float",
    bool: "boolean",
    datetime: "timestamp, UTC",
    date: "date",
}

_TITLE = """\
# Tables

Every table of the lake, and the views over them. This page is generated from `schemas/`
(`python -m schemas.table_docs > docs/tables.md`): change descriptions there.

Rows are Parquet files `lake/<table>/<partition>/part-0.parquet`; the partition is the shard
(`sketchbook-0000`) of tables partitioned by shard, and `all` for the others. Each file carries its
table's name and schema version and a hash of its rows, and every column its description. Query with
`interleave sql "..."`, with `interleave_foundry.query("...")` from pandas, or open
`warehouse.duckdb` with any DuckDB client.

| table | one row is | partitions |
|---|---|---|
"""


def render_table_docs() -> str:
    """The page as Markdown: an overview, then a section per table, in the order of the lineage."""
    documented: tuple[Table | View, ...] = (*TABLES.values(), *VIEWS.values())
    overview = (
        f"| [`{each.name}`](#{each.name}) | {_cell(each.description)} | {_partitions(each)} |\n"
        for each in documented
    )
    return "\n".join([_TITLE + "".join(overview), *map(_section, documented)])


def _section(table: Table | View) -> str:
    lines = [f"## {table.name}", "", table.description, "", *_properties(table), ""]
    lines += ["| column | type | null | what it is |", "|---|---|---|---|"]
    lines += _columns(table.columns)
    return "\n".join([*lines, "", "```sql", _example(table), "```", ""])


def _properties(table: Table | View) -> Iterator[str]:
    yield f"- key: {_names(table.key)}"
    if isinstance(table, View):
        links = (f"[`{name}`](#{name})" for name in table.tables)
        yield f"- a view over {', '.join(links)}"
        return
    yield f"- partitions: {_partitions(table)}"
    yield f"- schema version: {table.version}"
    for reference in table.references:
        link = f"[`{reference.table}`](#{reference.table})"
        yield f"- {_names(reference.columns)} → {link} ({_names(reference.target)})"


def _columns(columns: dict[str, FieldInfo], prefix: str = "") -> Iterator[str]:
    """A line per column, then one per field of the rows nested in it."""
    for name, info in columns.items():
        column_type, nullable = unwrap_optional(info.annotation)
        cells = (_type_name(column_type), "yes" if nullable else "", _cell(info.description or ""))
        yield f"| `{prefix}{name}` | {' | '.join(cells)} |"
        if nested := _nested(info.annotation):
            yield from _columns(nested.model_fields, f"{prefix}{name}.")


def _example(table: Table | View) -> str:
    """A view's own, or a query that counts rows by the columns with few values, or by pack or
    shard."""
    if isinstance(table, View):
        return table.example
    choices = [name for name, info in table.columns.items() if _is_choice(info.annotation)]
    group = choices or [name for name in ("pack", "shard") if name in table.columns]
    if not group:
        return f"SELECT count(*) AS rows FROM {table.name};"
    by = ", ".join(group)
    return f"SELECT {by}, count(*) AS rows FROM {table.name} GROUP BY {by} ORDER BY rows DESC;"


def _type_name(annotation: object) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " \\| ".join(f"`{value}`" for value in args)
    if origin in (list, tuple):
        return f"list of {_type_name(args[0])}"
    return _TYPE_NAMES.get(annotation, "struct")


def _nested(annotation: object) -> type[BaseModel] | None:
    """The row model inside a column's type, if any."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = (_nested(part) for part in typing.get_args(annotation))
    return next((model for model in models if model), None)


def _is_choice(annotation: object) -> bool:
    parts = (annotation, *typing.get_args(annotation))
    return annotation is bool or any(typing.get_origin(part) is typing.Literal for part in parts)


def _partitions(table: Table | View) -> str:
    if isinstance(table, View):
        return "a view"
    return "by shard" if table.sharded else "`all`"


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


if __name__ == "__main__":
    sys.stdout.write(render_table_docs())
