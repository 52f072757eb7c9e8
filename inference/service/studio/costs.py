"""Costs in the studio: sums of the ledger by day, model, asset and shard, and the budget."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime, BaseModel, Field

from warehouse import Home
from warehouse.costs import CostReport, cost_report
from warehouse.views import connect, with_retries

from ...backends.providers.budget import SpendingFile
from ...backends.providers.settings import BudgetSettings
from ...calls.call_index import CallKey, call_id
from ..response_store import ResponseStore
from ..serving import owner_of

_KEY = ", ".join(f"calls.{name}" for name in CallKey._fields)
_CALLS = f"""
    SELECT call_id, asset, generation_id, {_KEY}
    FROM model_calls AS calls JOIN generations USING (shard, prompt_id)
    WHERE generation_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
"""


class AlertSummary(BaseModel):
    """A share of the budget that was reached."""

    share: float
    reached_at: AwareDatetime


class BudgetSummary(BaseModel):
    """The budget of all paid calls of the home."""

    usd: float
    spent: float = Field(description="USD of finished calls, on this machine")
    reserved: float = Field(description="USD that calls under way may cost at most")
    alert_at: list[float] = Field(description="Shares at which an alert is sent")
    alerts: list[AlertSummary] = Field(description="Those that were reached with this budget")


class StudioCosts(CostReport):
    """What the home has cost, or the stored requests of a key."""

    own: bool = Field(description="Only the calls of this key's stored requests, and no budget")
    budget: BudgetSummary | None = Field(description="null: the profile has none")


def costs_router(
    home: Home, budget: BudgetSettings | None, store: ResponseStore, own: bool
) -> APIRouter:
    """The route. Sums are made by DuckDB in a thread, one request after the other: a large ledger
    must not take all threads and memory from the service's requests.

    Args:
        own: a key sees the costs of its own requests, as there are others.
    """
    router = APIRouter(prefix="/studio", tags=["studio"])
    reader = asyncio.Semaphore(1)

    @router.get("/costs")
    async def costs(
        request: Request,
        since: Annotated[date | None, Query(description="First day, UTC; all without it")] = None,
    ) -> StudioCosts:
        """Sums over all calls and trainings, by day, model, asset and shard."""
        async with reader:
            return await asyncio.to_thread(read, owner_of(request), since)

    def read(owner: str, since: date | None) -> StudioCosts:
        calls = _calls_of(home, store.generation_ids(owner)) if own else None
        report = cost_report(home, since=since, call_ids=calls)
        summary = None if own else _budget(home, budget)
        return StudioCosts(total=report.total, tables=report.tables, own=own, budget=summary)

    return router


def _calls_of(home: Home, generation_ids: Sequence[str]) -> list[str]:
    """Ids of the calls of requests.

    A call is known by its id, made of that of its request: its row names a partition and a prompt,
    which requests of other keys may share.
    """
    with closing(connect(home, read_only=False)) as connection:
        rows = with_retries(lambda: connection.execute(_CALLS, [generation_ids]).fetchall())
    stored = {row[0] for row in rows}
    keys = Counter((asset, generation, CallKey(*key)) for _, asset, generation, *key in rows)
    ids = (call_id(*key, earlier) for key, count in keys.items() for earlier in range(count))
    return [each for each in ids if each in stored]


def _budget(home: Home, settings: BudgetSettings | None) -> BudgetSummary | None:
    if settings is None:
        return None
    spending = SpendingFile.of(home).read()
    alerts = spending.alerts if spending else ()
    return BudgetSummary(
        usd=settings.usd,
        spent=spending.spent if spending else 0.0,
        reserved=spending.reserved if spending else 0.0,
        alert_at=settings.alerts,
        alerts=[
            AlertSummary.model_validate({"share": each.share, "reached_at": each.at})
            for each in alerts
            if each.usd == settings.usd
        ],
    )
