"""Tables and their rows.

Parquet schemas, asset checks, DuckDB views, Dagster column metadata and `docs/tables.md` are all
derived from the `Table` objects of this package; a column is described once, on its field.
"""

import types
import typing
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property

import pyarrow as pa
from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

_SCALARS: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
    date: pa.date32(),
}


class Row(BaseModel):
    """A row of a table. Field descriptions are the table's documentation."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class ForeignKey:
    """Every non-null `columns` of the child must exist among `table`'s `target` columns."""

    columns: tuple[str, ...]
    table: str
    target: tuple[str, ...]


@dataclass(frozen=True)
class _Rows:
    """What tables and views have in common.

    Args:
        key: columns whose values identify a row.
    """

    name: str
    row: type[Row]
    key: tuple[str, ...]

    @property
    def description(self) -> str:
        """The docstring of the row model in one line."""
        return " ".join((self.row.__doc__ or "").split())

    @property
    def columns(self) -> dict[str, FieldInfo]:
        return self.row.model_fields


@dataclass(frozen=True)
class Table(_Rows):
    """A table of the lake.

    Args:
        version: schema version, raised when a stored column changes its meaning, name or type, and
            when one is added; partitions of another version are not read.
        sharded: one partition per shard, else the single partition `all`.
        references: foreign keys, checked by asset checks.
    """

    version: int = 1
    sharded: bool = False
    references: tuple[ForeignKey, ...] = ()

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The Parquet schema; its metadata has table name and version, its fields descriptions."""
        metadata = {"interleave.table": self.name, "interleave.version": str(self.version)}
        return pa.schema(_arrow_fields(self.row), metadata=metadata)

    def to_arrow(self, rows: typing.Iterable[Row]) -> pa.Table:
        return pa.Table.from_pylist([row.model_dump() for row in rows], schema=self.arrow_schema)


@dataclass(frozen=True)
class View(_Rows):
    """A query that every DuckDB client of a home sees beside the tables.

    Args:
        tables: names of the tables that it reads.
        sql: the query, with the columns of `row` in their order.
        example: a query over it.
    """

    tables: tuple[str, ...]
    sql: str
    example: str


def _arrow_fields(model: type[BaseModel]) -> list[pa.Field]:
    return [
        _arrow_field(name, info.annotation).with_metadata({"description": info.description or ""})
        for name, info in model.model_fields.items()
    ]


def _arrow_field(name: str, annotation: object) -> pa.Field:
    inner, nullable = unwrap_optional(annotation)
    return pa.field(name, _arrow_type(inner), nullable=nullable)


def _arrow_type(annotation: object) -> pa.DataType:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return _SCALARS[type(args[0])]
    if origin in (list, tuple):
        return pa.list_(_arrow_field("item", args[0]))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return pa.struct(_arrow_fields(annotation))
    if isinstance(annotation, type) and annotation in _SCALARS:
        return _SCALARS[annotation]
    raise TypeError(f"no Arrow type for {annotation!r}")


def unwrap_optional(annotation: object) -> tuple[object, bool]:
    """A column's type without null, and whether it may be null."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(annotation) if a is not type(None)]
        if len(inner) != 1:
            raise TypeError(f"a column has one type, or that type or null, not {annotation!r}")
        return inner[0], True
    return annotation, False
