"""Held-out items of a lake: requests to run, and stored attempts whose true verdict is known.

Items of split `heldout` are parted by a hash of their prompt: two thirds are `dev`, for promotion
and for choosing settings, one third is `test`, which is reported and chooses nothing. Items of
split `heldout_category`, of sub-categories never trained on, are all `test`.
"""

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow.compute as pc

from inference.calls.ask import CallSite
from inference.calls.hashing import stable_hash
from schemas.prompts import PROMPTS, PromptRow, Split
from training.rewards.reward import Grades
from warehouse import Home

from ..core.duckdb_session import duckdb_session
from ..core.profile import Profile
from .settings import EvaluationSettings, ItemSettings

T = TypeVar("T")
AttemptKey = tuple[str, int, int]  # trajectory, step, iteration
Part = Literal["dev", "test"]
_SplitPart = tuple[Split, Part]
PARTS: tuple[_SplitPart, ...] = (
    ("heldout", "dev"),
    ("heldout", "test"),
    ("heldout_category", "test"),
)
# One of three parts is `test`. Another number would move prompts that settings were chosen by.
_PARTS_OF_A_SPLIT = 3
_ATTEMPTS = """
SELECT trajectory_id, attempts.prompt_id, attempts.shard, step_number, iteration,
       plans.prompt AS goal, CASE WHEN iteration = 0 THEN '' ELSE attempts.prompt END AS rewritten,
       source_image, image, accepted, semantics, quality, overall, t_max
FROM attempts JOIN trajectories USING (trajectory_id) JOIN plans USING (plan_id, step_number)
LEFT JOIN scores USING (trajectory_id, step_number, iteration)
WHERE plans.prompt IS NOT NULL AND {where}
ORDER BY attempts.shard, trajectory_id, step_number, iteration
"""
_HELD_OUT = """
plans.prompt <> '' AND overall IS NOT NULL
AND attempts.prompt_id IN (SELECT prompt_id FROM prompts WHERE pack = ? AND split = ?)
"""


@dataclass(frozen=True)
class StoredAttempt:
    """One drawn image, as the lake has it; its scores are None where it has none.

    Args:
        goal: the plan's prompt of the step.
        rewritten: the prompt that made the image; empty where it was the plan's own.
        source_image, image: sha256; None: drawn from text alone.
        semantics, quality, overall: 0 to 10.
        t_max: attempts that the step was allowed.
        truth: the correct verdict, by its scores, of an item of an evaluation.
    """

    trajectory_id: str
    prompt_id: str
    shard: str
    step_number: int
    iteration: int
    goal: str
    rewritten: str
    source_image: str | None
    image: str
    accepted: bool
    semantics: float | None
    quality: float | None
    overall: float | None
    t_max: int
    truth: bool | None = None

    @property
    def key(self) -> AttemptKey:
        return self.trajectory_id, self.step_number, self.iteration

    @property
    def item_id(self) -> str:
        return "/".join(map(str, self.key))

    @property
    def site(self) -> CallSite:
        return CallSite(self.prompt_id, self.step_number, self.iteration)

    @property
    def grades(self) -> Grades:
        return Grades(self.semantics or 0.0, self.quality or 0.0)

    @property
    def grade(self) -> float | None:
        """The lower of overall score and quality, by which the image counts as good or bad."""
        return min(self.overall, self.quality or 0.0) if self.overall is not None else None


def stored_attempts(home: Home, where: str, parameters: Iterable[Any] = ()) -> list[StoredAttempt]:
    """Attempts by shard, trajectory, step and iteration. `where`: a condition of SQL."""
    with closing(duckdb_session(home)) as connection:
        rows = connection.sql(_ATTEMPTS.format(where=where), params=[*parameters]).to_arrow_table()
    return [StoredAttempt(**row) for row in rows.to_pylist()]


@dataclass(frozen=True)
class HeldOutItems:
    """Items that are evaluated together. `journal`: where the calls of its split are stored."""

    name: str
    journal: str
    requests: tuple[PromptRow, ...]
    attempts: tuple[StoredAttempt, ...]


def pack_name(profile: Profile) -> str:
    """The name of a profile's pack, which it names or whose folder it has."""
    return Path(profile.pack).resolve().name


def benchmark_name(pack: str, split: Split, part: Part) -> str:
    """Name in the table `evaluations`: `sketchbook-heldout-dev`."""
    return f"{_journal_name(pack, split)}-{part}"


def promotion_benchmark(pack: str) -> str:
    """The benchmark that promotion decides by."""
    return benchmark_name(pack, "heldout", "dev")


def is_test(benchmark: str) -> bool:
    """Whether the numbers of a benchmark are only reported."""
    return benchmark.endswith("-test")


def part_of(split: Split, prompt_id: str) -> Part:
    """The part of a held-out prompt, and of all its attempts."""
    number = int(stable_hash("held-out part", prompt_id), 16) % _PARTS_OF_A_SPLIT
    return "test" if number == 0 or split == "heldout_category" else "dev"


def _journal_name(pack: str, split: Split) -> str:
    """Both parts of a split have one journal."""
    return f"{pack}-{split.replace('_', '-')}"


def load_benchmarks(
    home: Home, pack: str, settings: EvaluationSettings, accept_at_least: float
) -> list[HeldOutItems]:
    """The benchmarks of a lake, in the order of `PARTS`: the one for promotion first.

    `accept_at_least`: overall score, and quality grade, from which on "true" is correct.
    """
    splits = dict.fromkeys(split for split, _ in PARTS)
    attempts = {split: _judged_attempts(home, pack, split, accept_at_least) for split in splits}
    benchmarks = []
    for split, part in PARTS:
        count = _limits(settings, split, part).verdicts
        own = [item for item in attempts[split] if part_of(split, item.prompt_id) == part]
        balanced: list[StoredAttempt] = []
        for truth in (True, False):
            items = (item for item in own if item.truth is truth)
            balanced += _sample(items, count, settings.seed, lambda item: item.item_id)
        requests = _requests(home, pack, settings, split, part)
        name, journal = benchmark_name(pack, split, part), _journal_name(pack, split)
        benchmarks.append(HeldOutItems(name, journal, tuple(requests), tuple(balanced)))
    return benchmarks


def heldout_requests(home: Home, pack: str, settings: EvaluationSettings) -> list[PromptRow]:
    """The requests of all benchmarks of a lake."""
    return [row for part in PARTS for row in _requests(home, pack, settings, *part)]


def _requests(
    home: Home, pack: str, settings: EvaluationSettings, split: Split, part: Part
) -> list[PromptRow]:
    """Of the whole bank, so that they stay the same while more shards become trajectories."""
    where = (pc.field("pack") == pack) & (pc.field("split") == split)
    rows = [PromptRow(**row) for row in home.lake.read(PROMPTS, where=where).to_pylist()]
    own = (row for row in rows if part_of(split, row.prompt_id) == part)
    count = _limits(settings, split, part).stories
    return _sample(own, count, settings.seed, lambda row: row.prompt_id)


def _limits(settings: EvaluationSettings, split: Split, part: Part) -> ItemSettings:
    """Numbers of items of a part: those of a split in all are as set."""
    limits: ItemSettings = getattr(settings, split)
    if split == "heldout_category":
        return limits

    test = {name: count // _PARTS_OF_A_SPLIT for name, count in limits}
    dev = {name: count - test[name] for name, count in limits}
    return ItemSettings(**(test if part == "test" else dev))


def _judged_attempts(
    home: Home, pack: str, split: Split, accept_at_least: float
) -> list[StoredAttempt]:
    found = stored_attempts(home, _HELD_OUT, [pack, split])
    return [
        replace(item, truth=min(item.grades.overall, item.grades.quality) >= accept_at_least)
        for item in found
    ]


def _sample(items: Iterable[T], count: int, seed: int, key: Callable[[T], str]) -> list[T]:
    """A seeded sample by the items' ids, so that it changes little when items are added."""
    return sorted(items, key=lambda item: stable_hash("evaluation", seed, key(item)))[:count]
