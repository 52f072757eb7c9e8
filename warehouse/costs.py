"""What the calls, trainings and servers of a home cost: sums of the view `costs`, by a column."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import date
from typing import Any, Literal, get_args

import duckdb
from pydantic import BaseModel, Field

from schemas import StorageError
from schemas.views import COSTS

from .home import Home
from .storage import first_line
from .views import connect, with_retries

By = Literal["day", "model", "asset", "shard"]
GROUPINGS: tuple[By, ...] = get_args(By)
_BY_COST = "cost_usd DESC NULLS LAST, seconds DESC NULLS LAST, name"


class Costs(BaseModel):
    """Sums as in the view `costs`; null: nothing of it was measured."""

    calls: int | None = Field(description="Model calls")
    cached: int | None = Field(description="Calls answered from another asset's journal")
    failed: int | None = Field(description="Calls that ended in an error")
    retries: int | None = Field(description="Retries after the first try")
    input_tokens: int | None
    output_tokens: int | None
    uncounted: int | None = Field(description="Calls whose tokens are not in the sums")
    images: int | None
    seconds: float | None = Field(description="Wall time, one after the other")
    cost_usd: float | None
    estimated_usd: float | None = Field(description="Part of the cost that is an estimate")
    unpriced: int | None = Field(
        description="Calls, trainings and runs of servers that are not in the cost"
    )
    gpu_hours: float | None


class CostGroup(Costs):
    """The sums of a day, model, asset or shard."""

    name: str = Field(description="Its name; a day as YYYY-MM-DD; empty: no shard")


class CostTable(BaseModel):
    """Groups by day in their order, others with the most expensive first."""

    groups: list[CostGroup]
    total: int = Field(description="Number of groups, of which the first are listed")


class CostReport(BaseModel):
    """Sums over a home."""

    total: Costs
    tables: dict[By, CostTable]


def cost_report(
    home: Home,
    by: Sequence[By] = GROUPINGS,
    since: date | None = None,
    most: int = 100,
    call_ids: Sequence[str] | None = None,
) -> CostReport:
    """Sums over all, and by each of some columns; the ledger is read once.

    Args:
        since: first day, UTC; None: all.
        most: groups of a table, at most; of days the last ones.
        call_ids: only these calls, without trainings and servers; None: all.

    Raises:
        StorageError: a table cannot be read.
    """
    with closing(connect(home, read_only=False)) as connection:
        view = "costs" if call_ids is None else f"({_COSTS_OF_CALLS})"
        ids = [] if call_ids is None else [call_ids]
        try:
            with_retries(
                lambda: connection.execute(
                    f"CREATE TEMP TABLE found AS SELECT * FROM {view} WHERE day >= ?",
                    [*ids, since or date.min],
                )
            )
        except duckdb.Error as error:
            raise StorageError(first_line(error)) from error
        (total,) = _records(connection, f"SELECT {_SUMS} FROM found")
        tables = {column: _table(connection, column, most) for column in by}
        return CostReport(total=Costs.model_validate(total), tables=tables)


# The view, of other tables under the names of its own.
_COSTS_OF_CALLS = f"""
    WITH model_calls AS (
        SELECT * FROM main.model_calls WHERE call_id IN (SELECT unnest(CAST(? AS VARCHAR[])))),
    checkpoints AS (SELECT * FROM main.checkpoints WHERE false),
    server_hours AS (SELECT * FROM main.server_hours WHERE false)
    {COSTS.sql}
"""

_SUMS = ", ".join(
    f"CAST(sum({name}) AS {'DOUBLE' if info.annotation == float | None else 'BIGINT'}) AS {name}"
    for name, info in Costs.model_fields.items()
)


def _table(connection: duckdb.DuckDBPyConnection, column: By, most: int) -> CostTable:
    order = "name DESC" if column == "day" else _BY_COST
    name = f"coalesce(CAST({column} AS VARCHAR), '') AS name"
    groups = f"SELECT {name}, {_SUMS} FROM found GROUP BY {column}"
    rows = _records(connection, f"{groups} ORDER BY {order} LIMIT {most}")
    if column == "day":
        rows.reverse()
    (count,) = _records(connection, f"SELECT count(*) AS n FROM ({groups})")
    return CostTable(groups=[CostGroup.model_validate(row) for row in rows], total=count["n"])


def _records(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Mapping[str, Any]]:
    records: list[Mapping[str, Any]] = connection.sql(sql).to_arrow_table().to_pylist()
    return records
