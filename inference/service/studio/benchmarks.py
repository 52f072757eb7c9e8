"""Benchmark runs in the studio: their headline numbers, and the report of one or two of them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from schemas import FoundryError, SchemaMismatchError, StorageError
from schemas.benchmarks import BENCHMARK_RESULTS
from warehouse import Home

from ...http.errors import bad_request, not_found

# The names of one run or of two -> an HTML page that needs nothing else.
ReportRenderer = Callable[[Sequence[str]], str]

# Texts in it are of requests and of models: nothing in it may run, or reach this origin.
_REPORT_HEADERS = {
    "Content-Security-Policy": (
        "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class BenchmarkRunSummary(BaseModel):
    """A system's answers to a benchmark, judged by a judge, by the number that ranks systems."""

    name: str = Field(description="Name of the run")
    benchmark: str
    system: str = Field(description="Who answered")
    judge: str = Field(description="Who judged")
    metric: str
    value: float | None = Field(description="null: no item has it")
    low: float | None = Field(description="Lower end of its interval")
    high: float | None = Field(description="Upper end of its interval")
    items: int = Field(description="Items that were answered and judged")
    of_items: int = Field(description="Items that the benchmark has")
    unscored: float = Field(description="Share of the items for which a metric is missing")
    evaluated_at: AwareDatetime


_COLUMNS = [name for name in BenchmarkRunSummary.model_fields if name != "name"]


class BenchmarkRunList(BaseModel):
    """The benchmark runs of the home, newest first."""

    runs: list[BenchmarkRunSummary]


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


def _runs(home: Home) -> list[BenchmarkRunSummary]:
    found = []
    for name in _names(home):
        rows = home.lake.read(BENCHMARK_RESULTS, [name], [*_COLUMNS, "headline"]).to_pylist()
        headline = next((row for row in rows if row.pop("headline")), None)
        if headline:
            found.append(BenchmarkRunSummary(name=name, **headline))
    return sorted(found, key=lambda each: each.evaluated_at, reverse=True)
