"""Costs in the studio: sums of the ledger by day, model, asset and shard, and the budget."""

import asyncio
from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, Field

from warehouse import Home
from warehouse.costs import CostReport, cost_report

from ...backends.providers.settings import BudgetSettings
from ...backends.providers.spending import SpendingFile
from ..openapi import ErrorBody


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
    """What the home has cost."""

    budget: BudgetSummary | None = Field(description="null: the profile has none")


def costs_router(home: Home, budget: BudgetSettings | None) -> APIRouter:
    """The route. Sums are made by DuckDB in a thread, one request after the other: a large ledger
    must not take all threads and memory from the service's requests."""
    errors: dict[int | str, dict[str, Any]] = {"default": {"model": ErrorBody}}
    router = APIRouter(prefix="/studio", tags=["studio"], responses=errors)
    reader = asyncio.Semaphore(1)

    @router.get("/costs")
    async def costs(
        since: Annotated[date | None, Query(description="First day, UTC; all without it")] = None,
    ) -> StudioCosts:
        """Sums over all calls and trainings, by day, model, asset and shard."""
        async with reader:
            report = await asyncio.to_thread(cost_report, home, since=since)
            summary = await asyncio.to_thread(_budget, home, budget)
        return StudioCosts(total=report.total, tables=report.tables, budget=summary)

    return router


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
