"""Held-out items of a lake: requests to tell, and stored attempts whose true verdict is known."""

from collections.abc import Iterable
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
        rewritten: the prompt that made it; empty when it was the plan's own.
        source, image: sha256 of the picture before (None: from scratch) and after.
        grades: what it was scored, 0-10.
        truth: the verdict it deserves.
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
    stories: tuple[PromptRow, ...]
    attempts: tuple[AttemptItem, ...]


def benchmark_name(pack: str, split: Split) -> str:
    """Name in the table `evaluations`: `sketchbook-heldout`."""
    return f"{pack}-{split.replace('_', '-')}"


def benchmarks(
    home: Home, pack: str, settings: EvaluationSettings, accept_at_least: float
) -> list[Benchmark]:
    """The benchmarks of a lake, in the order of `HELD_OUT`.

    Args:
        accept_at_least: overall score, and lowest grade of its quality, that deserves a "true".
    """
    return [_benchmark(home, pack, split, settings, accept_at_least) for split in HELD_OUT]


def _benchmark(
    home: Home, pack: str, split: Split, settings: EvaluationSettings, accept_at_least: float
) -> Benchmark:
    wanted: ItemSettings = getattr(settings, split)
    prompts = _prompts(home, pack, split)
    stories = _some(prompts, wanted.stories, settings.seed, lambda row: row.prompt_id)
    attempts = _attempts(home, {row.prompt_id for row in prompts}, accept_at_least)
    judged = [
        item
        for truth in (True, False)
        for item in _some(
            (a for a in attempts if a.truth is truth),
            wanted.verdicts,
            settings.seed,
            lambda item: item.item_id,
        )
    ]
    return Benchmark(benchmark_name(pack, split), tuple(stories), tuple(judged))


def _prompts(home: Home, pack: str, split: Split) -> list[PromptRow]:
    """Requests of the split whose shard was told."""
    told = set(home.lake.partitions(TRAJECTORIES))
    mine = (pc.field("pack") == pack) & (pc.field("split") == split)
    records = home.lake.read(PROMPTS, sorted(told), where=mine).to_pylist()
    return [PromptRow.model_validate(record) for record in records]


def _attempts(home: Home, prompt_ids: set[str], accept_at_least: float) -> list[AttemptItem]:
    lake = home.lake
    of_ours = pc.field("prompt_id").isin(pa.array(sorted(prompt_ids), pa.string()))
    plan_of = {
        row["trajectory_id"]: row["plan_id"]
        for row in lake.read(TRAJECTORIES, where=of_ours).to_pylist()
    }
    goals = {
        (row["plan_id"], row["step_number"]): row["prompt"]
        for row in lake.read(PLANS, where=of_ours).to_pylist()
    }
    scores = {_key(row): row for row in lake.read(SCORES, where=of_ours).to_pylist()}
    found = []
    for row in lake.read(ATTEMPTS, where=of_ours).to_pylist():
        goal = goals.get((plan_of.get(row["trajectory_id"]), row["step_number"]))
        score = scores.get(_key(row))
        if goal and score:
            found.append(_item(row, score, goal, accept_at_least))
    return found


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


def _some(items: Iterable[T], count: int, seed: int, name: Any) -> list[T]:
    """A sample that depends on nothing but the items' names: more items change little of it."""
    return sorted(items, key=lambda item: stable_hash("evaluation", seed, name(item)))[:count]
