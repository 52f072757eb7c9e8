"""Of the whole home in the studio: costs with the budget, and benchmark runs with their reports."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import AwareDatetime, BaseModel, Field

from schemas import FoundryError, SchemaMismatchError, StorageError
from schemas.benchmarks import BENCHMARK_RESULTS, BenchmarkResultRow
from warehouse import Home
from warehouse.costs import CostReport, cost_report
from warehouse.views import connect, with_retries

from ...backends.providers.budget import Spending, SpendingFile
from ...backends.providers.settings import BudgetSettings
from ...calls.call_index import CallKey, call_id
from ...http.errors import bad_request, not_found
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
    spending = SpendingFile.of(home).read() or Spending(0.0, 0.0, ())
    reached = [
        AlertSummary.model_validate({"share": each.share, "reached_at": each.at})
        for each in spending.alerts
        if each.usd == settings.usd
    ]
    return BudgetSummary(
        usd=settings.usd,
        spent=spending.spent,
        reserved=spending.reserved,
        alert_at=settings.alerts,
        alerts=reached,
    )


# The names of one run or of two -> an HTML page that needs nothing else.
ReportRenderer = Callable[[Sequence[str]], str]

# Texts in it are of requests and of models: nothing in it may run, or reach this origin.
_REPORT_HEADERS = {
    "Content-Security-Policy": (
        "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
}


class BenchmarkRun(BenchmarkResultRow):
    """A system's answers to a benchmark, judged by a judge, by the number that ranks systems."""

    name: str = Field(description="Name of the run")


class BenchmarkRunList(BaseModel):
    """The benchmark runs of the home, newest first."""

    runs: list[BenchmarkRun]


def benchmark_router(home: Home, render: ReportRenderer) -> APIRouter:
    """The routes; they read the lake, which the service's requests never change there."""
    router = APIRouter(prefix="/studio/benchmarks", tags=["studio"])

    @router.get("")
    def runs() -> BenchmarkRunList:
        return BenchmarkRunList(runs=_runs(home))

    @router.get("/report", response_class=Response)
    async def report(run: Annotated[list[str], Query(min_length=1, max_length=2)]) -> Response:
        """The report of a run, or of two compared."""
        if unknown := set(run) - set(await asyncio.to_thread(_names, home)):
            raise not_found(f"there is no benchmark run {min(unknown)}")
        try:
            page = await asyncio.to_thread(render, run)
        except (SchemaMismatchError, StorageError):  # the log, not the response, names the file
            raise
        except FoundryError as error:  # such as two benchmarks
            raise bad_request(str(error), "run") from error
        return Response(page, media_type="text/html", headers=_REPORT_HEADERS)

    return router


def _names(home: Home) -> list[str]:
    return home.lake.partitions(BENCHMARK_RESULTS)


def _runs(home: Home) -> list[BenchmarkRun]:
    found: list[BenchmarkRun] = []
    for name in _names(home):
        rows = home.lake.read(BENCHMARK_RESULTS, [name]).to_pylist()
        found += [BenchmarkRun(name=name, **row) for row in rows if row["headline"]][:1]
    return sorted(found, key=lambda each: each.evaluated_at, reverse=True)
