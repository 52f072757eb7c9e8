"""Held-out items of a lake: requests to run, and stored attempts whose true verdict is known."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from inference.engine.hashing import stable_hash
from schemas.prompts import PROMPTS, PromptRow, Split
from schemas.trajectories import ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from training.rewards.reward import Grades
from warehouse import Home

from .settings import EvaluationSettings, ItemSettings

T = TypeVar("T")
HELD_OUT: tuple[Split, ...] = ("heldout", "heldout_category")
_ATTEMPT = ("trajectory_id", "step_number", "iteration")


@dataclass(frozen=True)
class AttemptItem:
    """A stored attempt to judge.

    Attributes:
        goal: the plan's prompt of its step.
        rewritten: the prompt that made the image; empty when it was the plan's own.
        source, image: sha256 of the image before (None: text-to-image) and after.
        grades: its stored scores, 0-10.
        truth: the correct verdict, by its scores.
    """

    item_id: str
    prompt_id: str
    step_number: int
    iteration: int
    goal: str
    rewritten: str
    source: str | None
    image: str
    grades: Grades
    truth: bool


@dataclass(frozen=True)
class Benchmark:
    """Items of one held-out split."""

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

    Args:
        accept_at_least: overall score, and quality grade, from which on "true" is correct.
    """
    return [_benchmark(home, pack, split, settings, accept_at_least) for split in HELD_OUT]


def _benchmark(
    home: Home, pack: str, split: Split, settings: EvaluationSettings, accept_at_least: float
) -> Benchmark:
    limits: ItemSettings = getattr(settings, split)
    prompts = _prompts(home, pack, split)
    requests = _sample(prompts, limits.stories, settings.seed, lambda row: row.prompt_id)
    attempts = _attempts(home, {row.prompt_id for row in prompts}, accept_at_least)
    balanced = [
        item
        for truth in (True, False)
        for item in _sample(
            (a for a in attempts if a.truth is truth),
            limits.verdicts,
            settings.seed,
            lambda item: item.item_id,
        )
    ]
    return Benchmark(benchmark_name(pack, split), tuple(requests), tuple(balanced))


def _prompts(home: Home, pack: str, split: Split) -> list[PromptRow]:
    """Requests of the split in shards that have trajectories."""
    shards = sorted(home.lake.partitions(TRAJECTORIES))
    where = (pc.field("pack") == pack) & (pc.field("split") == split)
    records = home.lake.read(PROMPTS, shards, where=where).to_pylist()
    return [PromptRow.model_validate(record) for record in records]


def _attempts(home: Home, prompt_ids: set[str], accept_at_least: float) -> list[AttemptItem]:
    lake = home.lake
    where = pc.field("prompt_id").isin(pa.array(sorted(prompt_ids), pa.string()))
    plan_ids = {
        row["trajectory_id"]: row["plan_id"]
        for row in lake.read(TRAJECTORIES, where=where).to_pylist()
    }
    goals = {
        (row["plan_id"], row["step_number"]): row["prompt"]
        for row in lake.read(PLANS, where=where).to_pylist()
    }
    scores = {_key(row): row for row in lake.read(SCORES, where=where).to_pylist()}
    items = []
    for row in lake.read(ATTEMPTS, where=where).to_pylist():
        goal = goals.get((plan_ids.get(row["trajectory_id"]), row["step_number"]))
        score = scores.get(_key(row))
        if goal and score:
            items.append(_item(row, score, goal, accept_at_least))
    return items


def _item(
    row: dict[str, Any], score: dict[str, Any], goal: str, accept_at_least: float
) -> AttemptItem:
    grades = Grades(score["semantics"], score["quality"])
    return AttemptItem(
        item_id="/".join(map(str, _key(row))),
        prompt_id=row["prompt_id"],
        step_number=row["step_number"],
        iteration=row["iteration"],
        goal=goal,
        rewritten=row["prompt"] if row["iteration"] else "",
        source=row["source_image"],
        image=row["image"],
        grades=grades,
        truth=min(grades.overall, grades.quality) >= accept_at_least,
    )


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in _ATTEMPT)


def _sample(items: Iterable[T], count: int, seed: int, key: Callable[[T], str]) -> list[T]:
    """A seeded sample by the items' ids, so that it changes little when items are added."""
    return sorted(items, key=lambda item: stable_hash("evaluation", seed, key(item)))[:count]
