"""Forecasts of shards to come from the ledger of those that this home has finished."""

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa

from inference.calls.forecast import LEVEL, MIN_PROMPTS, MIN_SHARDS, Forecast, WorkItem, predict_sum
from schemas.trajectories import MODEL_CALLS, SCORES, TRAJECTORIES
from warehouse import Home
from warehouse.result_formats import count_noun

from ..core.foundry import SHARDS, FoundryResource
from ..prompts.user_requests import is_request_shard

_ASSETS = ("plans", "trajectories", "scores")
_MOST_SHARDS = 50
_COLUMNS = [
    *("shard", "prompt_id", "backend", "model", "cost_usd", "cached", "error"),
    *("started_at", "seconds"),
]
# Calls of the models, of shards in which all of them were called.
_OWN = """\
FROM calls WHERE NOT cached AND list_contains($models, backend || '/' || model)
AND shard IN (
    SELECT shard FROM calls WHERE list_contains($models, backend || '/' || model)
    GROUP BY shard HAVING count(DISTINCT backend || '/' || model) = len($models)
)"""
_COSTS = f"""
SELECT {{unit}} AS unit, count(DISTINCT prompt_id) AS prompts, coalesce(sum(cost_usd), 0) AS amount,
    bool_or(cost_usd IS NULL AND error IS NULL) AS unpriced
{_OWN} GROUP BY 1 ORDER BY 1"""
# Time during which calls were under way: that of pauses between two runs does not count.
_ACTIVE = f"""
SELECT {{unit}} AS unit,
    sum(greatest(0, ended - greatest(began, coalesce(before, began)))) AS amount
FROM (
    SELECT {{unit}}, epoch(started_at) AS began, epoch(started_at) + seconds AS ended,
        max(epoch(started_at) + seconds) OVER (
            PARTITION BY {{unit}} ORDER BY started_at
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
    {_OWN}
) GROUP BY 1 ORDER BY 1"""


@dataclass(frozen=True)
class LedgerForecast:
    """What prompts to come take, from those that are finished.

    Attributes:
        shards, prompts: that were measured: scored ones, by the profile's models alone.
        usd_per_prompt: None: there is a model without a price, or nothing to measure.
    """

    to_come: int
    shards: int
    prompts: int
    usd_per_prompt: float | None
    forecast: Forecast

    @property
    def source(self) -> str:
        shards = count_noun(self.shards, "shard")
        return f"{LEVEL:.0%} interval, from {self.prompts:,} prompts of {shards} here"


def ledger_forecast(home: Home, models: Collection[str], to_come: int) -> LedgerForecast:
    """Forecast plans, trajectories and scores of prompts to come, with some models.

    Shards are the unit as soon as enough are finished: prompts of a shard have more in common than
    others (the hour, a provider's load). Before that prompts are, for costs alone: what time a
    prompt takes depends on how many are worked on. Shards are worked on as many at a time as
    were on average. The newest ones are read, so that the cost of this stays the same.
    """
    calls = _newest_calls(home)
    parameters = {"models": sorted(models)}
    with closing(duckdb.connect()) as connection:
        connection.register("calls", calls)

        def query(sql: str, unit: str) -> list[dict[str, Any]]:
            found = connection.sql(sql.format(unit=unit), params=parameters).to_arrow_table()
            records: list[dict[str, Any]] = found.to_pylist()
            return records

        shards = query(_COSTS, "shard")
        active = {row["unit"]: row["amount"] for row in query(_ACTIVE, "shard")}
        together = sum(row["amount"] for row in query(_ACTIVE, "1"))
        enough = len(shards) >= MIN_SHARDS
        costs = shards if enough else query(_COSTS, "prompt_id")
    prompts, usd = sum(row["prompts"] for row in shards), sum(row["amount"] for row in shards)
    priced = bool(shards) and not any(row["unpriced"] for row in shards)
    at_least = MIN_SHARDS if enough else MIN_PROMPTS
    paid = [WorkItem(row["prompts"], row["amount"]) for row in costs]
    times = [WorkItem(row["prompts"], active[row["unit"]]) for row in shards]
    seconds = predict_sum(times, to_come, MIN_SHARDS)
    parallel = sum(active.values()) / together if together else 1.0
    return LedgerForecast(
        to_come=to_come,
        shards=len(shards),
        prompts=prompts,
        usd_per_prompt=usd / prompts if priced else None,
        forecast=Forecast(
            seconds and seconds * (1 / parallel),
            predict_sum(paid, to_come, at_least) if priced else None,
        ),
    )


def forecast_metadata(
    foundry: FoundryResource, instance: dg.DagsterInstance, models: Collection[str]
) -> dict[str, str]:
    """The rest of Dagster's shards; empty: nothing is to come, or not enough is known."""
    registered = instance.get_dynamic_partitions(str(SHARDS.name))
    to_come = set(registered) - set(foundry.home.lake.partitions(TRAJECTORIES))
    shards = sum(not is_request_shard(shard) for shard in to_come)
    if not shards:
        return {}
    prompts = shards * foundry.settings.bank.shard_size
    found = ledger_forecast(foundry.home, models, prompts)
    if not found.forecast.text:
        return {}
    return {
        "forecast": f"{found.to_come:,} prompts to come: {found.forecast.text} ({found.source})"
    }


def _newest_calls(home: Home) -> pa.Table:
    """The ledger of the newest finished shards."""
    finished = home.lake.partitions(SCORES)
    shards = [shard for shard in finished if not is_request_shard(shard)][-_MOST_SHARDS:]
    partitions = [f"{asset}-{shard}" for shard in shards for asset in _ASSETS]
    return home.lake.read(MODEL_CALLS, partitions, _COLUMNS)
