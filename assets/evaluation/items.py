"""Held-out items of a lake: requests to run, and stored attempts whose true verdict is known.

Items of split `heldout` are parted by a hash of their prompt: two thirds are `dev`, for promotion
and for choosing settings, one third is `test`, which is reported and chooses nothing. Items of
split `heldout_category`, of sub-categories never trained on, are all `test`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

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
    """Items that are evaluated together. `journal`: where the calls of its split are stored."""

    name: str
    journal: str
    requests: tuple[PromptRow, ...]
    attempts: tuple[AttemptItem, ...]


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
    """Both parts of a split have one journal, which older homes already have."""
    return f"{pack}-{split.replace('_', '-')}"


def load_benchmarks(
    home: Home, pack: str, settings: EvaluationSettings, accept_at_least: float
) -> list[Benchmark]:
    """The benchmarks of a lake, in the order of `PARTS`: the one for promotion first.

    `accept_at_least`: overall score, and quality grade, from which on "true" is correct.
    """
    attempts = {
        split: _attempts(home, pack, split, accept_at_least)
        for split in dict.fromkeys(split for split, _ in PARTS)
    }
    benchmarks = []
    for split, part in PARTS:
        limits = _limits(settings, split, part)
        requests = _requests(home, pack, settings.seed, (split, part), limits.stories)
        own = [item for item in attempts[split] if _is_in(item, split, part)]
        balanced: list[AttemptItem] = []
        for truth in (True, False):
            matching = (item for item in own if item.truth is truth)
            balanced += _sample(matching, limits.verdicts, settings.seed, lambda item: item.item_id)
        name, journal = benchmark_name(pack, split, part), _journal_name(pack, split)
        benchmarks.append(Benchmark(name, journal, tuple(requests), tuple(balanced)))
    return benchmarks


def load_test_benchmarks(
    home: Home, pack: str, settings: EvaluationSettings, accept_at_least: float
) -> list[Benchmark]:
    """Those of them that are only reported."""
    found = load_benchmarks(home, pack, settings, accept_at_least)
    return [benchmark for benchmark in found if is_test(benchmark.name)]


def heldout_requests(home: Home, pack: str, settings: EvaluationSettings) -> list[PromptRow]:
    """The requests of all benchmarks of a lake."""
    counts = {part: _limits(settings, *part).stories for part in PARTS}
    return [
        row
        for part, count in counts.items()
        for row in _requests(home, pack, settings.seed, part, count)
    ]


def _requests(
    home: Home, pack: str, seed: int, split_part: _SplitPart, count: int
) -> list[PromptRow]:
    prompts = [row for row in _prompts(home, pack, split_part[0]) if _is_in(row, *split_part)]
    return _sample(prompts, count, seed, lambda row: row.prompt_id)


def _limits(settings: EvaluationSettings, split: Split, part: Part) -> ItemSettings:
    """Numbers of items of a part: those of a split in all are as set."""
    limits: ItemSettings = getattr(settings, split)
    if split == "heldout_category":
        return limits

    def share(count: int) -> int:
        test = count // _PARTS_OF_A_SPLIT
        return test if part == "test" else count - test

    return ItemSettings(stories=share(limits.stories), verdicts=share(limits.verdicts))


def _is_in(item: PromptRow | AttemptItem, split: Split, part: Part) -> bool:
    return part_of(split, item.prompt_id) == part


def _prompts(home: Home, pack: str, split: Split) -> list[PromptRow]:
    """Those of the whole bank, so that they stay the same while more shards become trajectories."""
    where = (pc.field("pack") == pack) & (pc.field("split") == split)
    return [PromptRow(**row) for row in home.lake.read(PROMPTS, where=where).to_pylist()]


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
