"""Data sets of the sizes that a profile's `targets` name: how far they are, and what it takes yet.

A target counts the rows that are trained on: those of the lineage's set, of imports mixed into it
(`curation.exports.mix`) and of rounds, whose sets are apart. The lineage's set gets what remains.
It has all of its rows until there are enough, so rows by shard, and what they predict of shards to
come, follow from the table itself. Intervals are by the variance between shards (Student's t).
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inference.backends.providers.budget import SpendingFile
from inference.calls.forecast import LEVEL, MIN_SHARDS, Bounds, WorkItem, predict_sum, usd_range
from schemas import TABLES, FoundryError, Table
from schemas.prompts import PROMPTS
from schemas.trajectories import SCORES
from warehouse.result_formats import count_noun

from ..core.duckdb_session import duckdb_session
from ..core.foundry import FoundryResource
from ..core.metadata import table_metadata
from ..prompts.rounds import recorded_rounds, rounds_of_shards
from ..prompts.user_requests import is_request_shard
from ..trajectories.estimate import loop_model_names
from ..trajectories.forecast import ledger_forecast
from .sampling import reduce_rows
from .settings import BalanceSettings
from .shards import ShardedLake
from .sources import TrainingSources, round_rows

_MOST_SHARDS = 1_000_000  # that are predicted; more are said to be so many
_COUNTS = """
SELECT shard, coalesce(category, 'imported documents') AS category, count(*) AS rows
FROM {table} LEFT JOIN prompts USING (prompt_id) GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True)
class SetProgress:
    """A data set and its target.

    Args:
        by_shard: rows of each curated shard of the bank.
        by_category: rows of the lineage's set.
        elsewhere: rows of imports and rounds.
    """

    name: str
    target: int
    by_shard: tuple[int, ...]
    by_category: dict[str, int]
    elsewhere: dict[str, int]

    @property
    def done(self) -> int:
        return sum(self.by_category.values()) + sum(self.elsewhere.values())

    @property
    def is_met(self) -> bool:
        return self.done >= self.target

    @property
    def shards_to_come(self) -> Bounds | None:
        """More shards until the target is met; None: too few are curated to say."""
        if self.is_met:
            return Bounds(0, 0, 0)
        if len(self.by_shard) < MIN_SHARDS:
            return None
        return Bounds(*(self._first(bound) for bound in ("high", "expected", "low")))

    def rows_of(self, shards: int) -> Bounds:
        """What so many more shards bring; there have to be `MIN_SHARDS`."""
        measured = [WorkItem(1, rows) for rows in self.by_shard]
        return predict_sum(measured, shards, MIN_SHARDS) or Bounds(0, 0, 0)

    def _first(self, bound: str) -> float:
        """The smallest number of shards of which a bound of the prediction is enough."""
        numbers = range(1, _MOST_SHARDS)
        missing = self.target - self.done
        found = bisect_left(
            numbers, True, key=lambda number: getattr(self.rows_of(number), bound) >= missing
        )
        return numbers[found] if found < len(numbers) else _MOST_SHARDS

    @property
    def text(self) -> str:
        return f"{self.name} {self.done:,} of {self.target:,}"


@dataclass(frozen=True)
class Growth:
    """How far the sets are, and what the bank takes yet.

    Args:
        made: shards of the bank that have scores; `waiting`: those that wait for reviews.
        to_come: more curated shards, `usd` what those that are not made yet cost; None: not known.
        spent, budget: USD of this home; None: there is no budget.
    """

    sets: tuple[SetProgress, ...]
    made: int
    waiting: int
    to_come: Bounds | None
    usd: Bounds | None
    spent: float
    budget: float | None

    @property
    def is_met(self) -> bool:
        return all(each.is_met for each in self.sets)

    @property
    def text(self) -> str:
        """Such as `planner_sft 885 of 2,000; 6 to 8 more shards (90% interval, from 5 shards)`."""
        parts = [", ".join(each.text for each in self.sets)]
        if self.to_come and not self.is_met:
            parts.append(f"{_range(self.to_come)} more shards")
            parts += [usd_range(self.usd)] if self.usd else []
            parts[-1] += f" ({LEVEL:.0%} interval, from {count_noun(self.made, 'shard')})"
        return "; ".join(parts)

    def batch(self, most: int) -> int:
        """Shards to make next, of a bank of at most so many: no more than are surely needed."""
        low = self.to_come.low if self.to_come else MIN_SHARDS - self.made
        return min(max(int(low) - self.waiting, 1), most - self.made)

    def problem(self, most: int) -> str | None:
        """Why a bank of at most `most` shards, or the budget, will not do; None: they may.

        The bank's end costs nothing: it has to be certain. Of the budget the expected cost decides.
        """
        if self.is_met:
            return None
        room = most - self.made
        if self.waiting and (not self.to_come or self.to_come.expected <= self.waiting):
            return f"{self.waiting} shards wait for reviews (curation.reviews.share); {self.text}"
        if not self.to_come:
            return None if room > 0 else f"the bank of {most} shards has no more; {self.text}"
        if self.to_come.low - self.waiting > room:
            return (
                f"the bank ends after {most} shards, of which {self.made} are made: the targets "
                f"take {_range(self.to_come)} more: {self._remedy('sizes', room)}; {self.text}"
            )
        if self.usd and self.budget is not None and self.usd.expected > self.budget - self.spent:
            unspent = max(self.budget - self.spent, 0.0)
            affordable = int(self.to_come.expected * unspent / self.usd.expected)
            return (
                f"of the budget of {self.budget:,.2f} USD {unspent:,.2f} are not spent: the "
                f"targets take {usd_range(self.usd)} more: {self._remedy('budget', affordable)}; "
                f"{self.text}"
            )
        return None

    def _remedy(self, what: str, shards: int) -> str:
        """What would do: more of it, or targets that so many shards are enough for."""
        assert self.to_come
        bound = "high" if self.to_come.high < _MOST_SHARDS else "expected"
        if what == "budget":
            raised = f"a budget of {self.spent + getattr(self.usd, bound):,.2f} USD"
        else:
            shards_in_all = self.made - self.waiting + getattr(self.to_come, bound)
            raised = f"`sizes` with {shards_in_all:,.0f} shards"
        reached = [
            f"{each.name} {each.done + int(each.rows_of(shards).low if shards else 0):,}"
            for each in self.sets
            if not each.is_met
        ]
        return f"{raised} would do, or targets of {', '.join(reached)}"


def targets_of(foundry: FoundryResource) -> dict[str, int]:
    """Rows by set; those without a target are left out."""
    return {str(name): rows for name, rows in foundry.settings.targets.items()}


def own_target(foundry: FoundryResource, name: str) -> int | None:
    """Rows that the lineage's set is to have; None: it has no target.

    Raises:
        FoundryError: imports and rounds have more than the target.
    """
    target = targets_of(foundry).get(name)
    if target is None:
        return None
    others = sum(_elsewhere(foundry, TABLES[name]).values())
    if others > target:
        raise FoundryError(
            f"targets.{name}: {target:,} rows, but imports and rounds alone have {others:,}: raise "
            "the target, or lower the weights in curation.exports.mix"
        )
    return target - others


def reduce_to_target(
    foundry: FoundryResource,
    table: Table,
    rows: pa.RecordBatchReader,
    balance: BalanceSettings | None = None,
) -> pa.RecordBatchReader:
    """The rows of the lineage's set, at most as many as its target leaves to it."""
    target = own_target(foundry, table.name)
    if target is None:
        return rows
    categories = foundry.home.lake.read(PROMPTS, columns=["prompt_id", "category"])
    return reduce_rows(rows, target, categories, balance)


def read_growth(foundry: FoundryResource, names: Sequence[str]) -> Growth:
    """Progress and forecast of the named sets, which have to be up to date."""
    home = foundry.home
    made = {name for name in home.lake.partitions(SCORES) if not is_request_shard(name)}
    made -= rounds_of_shards(home, made).keys()
    curated = made.intersection(ShardedLake.of(home, foundry.settings.curation).shards)
    sets = tuple(_progress(foundry, name, sorted(curated)) for name in names)
    waiting = len(made) - len(curated)
    found = [each.shards_to_come for each in sets]
    known = [each for each in found if each]
    to_come = Bounds(*map(max, zip(*known, strict=True))) if len(known) == len(found) else None
    spending, budget = SpendingFile.of(home).read(), foundry.settings.budget
    return Growth(
        sets,
        len(made),
        waiting,
        to_come,
        _usd(foundry, to_come, waiting) if to_come else None,
        spending.spent if spending else 0.0,
        budget.usd if budget else None,
    )


def progress_metadata(foundry: FoundryResource, name: str) -> dict[str, Any]:
    """What Dagster shows of a set that has a target."""
    growth = read_growth(foundry, [name])
    (found,) = growth.sets
    sources = {"lineage": sum(found.by_category.values()), **found.elsewhere}
    return {
        "target": found.target,
        "done": found.done,
        "done/source": table_metadata([{"source": k, "rows": v} for k, v in sources.items()]),
        "done/category": table_metadata(
            [{"category": k, "rows": v} for k, v in found.by_category.items()]
        ),
        "forecast": growth.text,
    }


def _progress(foundry: FoundryResource, name: str, shards: Sequence[str]) -> SetProgress:
    with closing(duckdb_session(foundry.home)) as connection:
        counts = connection.execute(_COUNTS.format(table=name)).fetchall()
    by_shard, by_category = Counter[str](), Counter[str]()
    for shard, category, rows in counts:
        by_shard[shard] += rows
        by_category[category] += rows
    return SetProgress(
        name,
        targets_of(foundry)[name],
        tuple(by_shard[shard] for shard in shards),
        dict(by_category),
        _elsewhere(foundry, TABLES[name]),
    )


def _elsewhere(foundry: FoundryResource, table: Table) -> dict[str, int]:
    """Rows of imports and rounds that count, by where they are."""
    home = foundry.home
    made = round_rows(home, [plan.number for plan in recorded_rounds(home)], table)
    found = {
        "imports": TrainingSources(home, foundry.settings.curation).imported_count(table),
        "rounds": pc.sum(made["weight"]).as_py() or 0,
    }
    return {name: rows for name, rows in found.items() if rows}


def _usd(foundry: FoundryResource, shards: Bounds, waiting: int) -> Bounds | None:
    """What the shards cost that are not made yet, by the models of providers."""
    names = loop_model_names(foundry.without_keys())
    models = {name for name in names if name.partition("/")[0] in foundry.settings.apis}

    def predict(count: float) -> Bounds | None:
        prompts = math.ceil(max(count - waiting, 0)) * foundry.settings.bank.shard_size
        return ledger_forecast(foundry.home, models, prompts).forecast.usd

    if not models:
        return None
    low, expected, high = map(predict, shards)
    if low is None or expected is None or high is None:
        return None
    return Bounds(low.low, expected.expected, high.high)


def _range(interval: Bounds) -> str:
    if interval.high >= _MOST_SHARDS:
        return f"at least {interval.low:,.0f}"
    if interval.low == interval.high:
        return f"{interval.low:,.0f}"
    return f"{interval.low:,.0f} to {interval.high:,.0f}"
