"""Held-out items of a lake: requests to run, and stored attempts whose true verdict is known."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow.compute as pc

from inference.engine.calls import CallSite
from inference.engine.hashing import stable_hash
from schemas.prompts import PROMPTS, PromptRow, Split
from schemas.trajectories import TRAJECTORIES
from training.rewards.reward import Grades
from warehouse import Home

from ..curation.duckdb_session import duckdb_session
from .settings import EvaluationSettings, ItemSettings

T = TypeVar("T")
HELD_OUT: tuple[Split, ...] = ("heldout", "heldout_category")
_ATTEMPTS = """
    SELECT concat_ws('/', trajectory_id, step_number, iteration) AS item_id,
           attempts.prompt_id, step_number, iteration, plans.prompt AS goal,
           CASE WHEN iteration = 0 THEN '' ELSE attempts.prompt END AS rewritten,
           source_image AS source, image, semantics, quality
    FROM attempts JOIN scores USING (trajectory_id, step_number, iteration)
    JOIN trajectories USING (trajectory_id) JOIN plans USING (plan_id, step_number)
    JOIN prompts ON prompts.prompt_id = attempts.prompt_id
    WHERE pack = ? AND split = ? AND plans.prompt <> ''
"""


@dataclass(frozen=True)
class AttemptItem:
    """A stored attempt to judge."""

    item_id: str
    prompt_id: str
    step_number: int
    iteration: int
    goal: str  # the plan's prompt of its step
    rewritten: str  # the prompt that made the image; empty when it was the plan's own
    source: str | None  # sha256 of the image before; None: text-to-image
    image: str  # sha256
    grades: Grades  # its stored scores, 0-10
    truth: bool  # the correct verdict, by its scores

    @property
    def site(self) -> CallSite:
        return CallSite(self.prompt_id, self.step_number, self.iteration)


@dataclass(frozen=True)
class Benchmark:
    name: str
    requests: tuple[PromptRow, ...]
    attempts: tuple[AttemptItem, ...]


def benchmark_name(pack: str, split: Split) -> str:
    """Name in the table `evaluations`: `sketchbook-heldout`."""
    return f"{pack}-{split.replace('_', '-')}"


def load_benchmarks(
    home: Home, pack: str, settings: EvaluationSettings, accept_at_least: float
) -> list[Benchmark]:
    """The benchmarks of a lake, in the order of `HELD_OUT`.

    `accept_at_least`: overall score, and quality grade, from which on "true" is correct.
    """
    return [_benchmark(home, pack, split, settings, accept_at_least) for split in HELD_OUT]


def _benchmark(
    home: Home, pack: str, split: Split, settings: EvaluationSettings, accept_at_least: float
) -> Benchmark:
    limits: ItemSettings = getattr(settings, split)
    shards = sorted(home.lake.partitions(TRAJECTORIES))  # requests of others were not run
    where = (pc.field("pack") == pack) & (pc.field("split") == split)
    prompts = [PromptRow(**row) for row in home.lake.read(PROMPTS, shards, where=where).to_pylist()]
    requests = _sample(prompts, limits.stories, settings.seed, lambda row: row.prompt_id)
    attempts = _attempts(home, pack, split, accept_at_least)
    balanced = []
    for truth in (True, False):
        matching = (item for item in attempts if item.truth is truth)
        balanced += _sample(matching, limits.verdicts, settings.seed, lambda item: item.item_id)
    return Benchmark(benchmark_name(pack, split), tuple(requests), tuple(balanced))


def _attempts(home: Home, pack: str, split: Split, accept_at_least: float) -> list[AttemptItem]:
    items = []
    rows = duckdb_session(home).sql(_ATTEMPTS, params=[pack, split]).to_arrow_table()
    for row in rows.to_pylist():
        grades = Grades(row.pop("semantics"), row.pop("quality"))
        truth = min(grades.overall, grades.quality) >= accept_at_least
        items.append(AttemptItem(**row, grades=grades, truth=truth))
    return items


def _sample(items: Iterable[T], count: int, seed: int, key: Callable[[T], str]) -> list[T]:
    """A seeded sample by the items' ids, so that it changes little when items are added."""
    return sorted(items, key=lambda item: stable_hash("evaluation", seed, key(item)))[:count]
