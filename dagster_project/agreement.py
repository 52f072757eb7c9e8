"""`interleave agreement`: judges compared with people, and with each other."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.benchmarks.agreement import Agreement, agreement, disagreements, sampled
from assets.benchmarks.opening.arena import judge_duels
from assets.benchmarks.opening.scores import Duel, agreement_labels, read_duels
from assets.benchmarks.settings import BenchmarkJudgeSettings, BenchmarksSettings
from assets.core.profile import Profile
from assets.core.progress import progress_factory
from schemas import FoundryError
from schemas.benchmarks import BENCHMARK_RESULTS, JUDGEMENTS
from warehouse import Home

Labels = Mapping[Any, str | None]  # case -> label; None: unreadable


@dataclass(frozen=True)
class Compared:
    """Two judges on the same cases; `differing`: those on which they disagree."""

    first: str
    second: str
    result: Agreement
    differing: list[Any]


def compare_labels(
    first: tuple[str, Labels], second: tuple[str, Labels], sample: int | None = None
) -> Compared:
    """Agreement on all cases that both judged, or on a sample of them.

    Raises:
        FoundryError: they have no case in common.
    """
    common = [case for case in first[1] if case in second[1]]
    chosen = common if sample is None else sampled(common, sample)
    labels = {case: first[1][case] for case in chosen}
    if not chosen:
        raise FoundryError(f"{first[0]} and {second[0]} have judged nothing in common")
    found = agreement(labels, second[1])
    return Compared(first[0], second[0], found, disagreements(labels, second[1]))


def read_labels(home: Home, name: str) -> tuple[str, Labels]:
    """The verdicts of an official file of OpENING (ties count for the side that they lean to), or
    the judgements of a run of this home.

    Raises:
        FoundryError: there is no such file or run.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return path.name, agreement_labels(read_duels(path))
    lake = home.lake
    if name not in lake.partitions(BENCHMARK_RESULTS):
        known = ", ".join(sorted(lake.partitions(BENCHMARK_RESULTS))) or "none"
        raise FoundryError(f"{name} is neither a file nor a run of {home.root}; runs: {known}")
    partitions = [each for each in lake.partitions(JUDGEMENTS) if each.startswith(f"{name}.")]
    rows = lake.read(JUDGEMENTS, partitions, ["item_id", "call", "value"]).to_pylist()
    return name, {(row["item_id"], row["call"]): row["value"] for row in rows}


def labels_of_judge(
    profile: Profile,
    home: Home,
    judge: BenchmarkJudgeSettings,
    people: Path,
    source: Path,
    answers: Path,
    sample: int | None,
) -> tuple[str, Labels]:
    """A judge's verdicts on the comparisons of an official file, each asked once.

    Raises:
        FoundryError: official files are missing, or the judge gave no answer.
    """
    duels: list[Duel] = read_duels(people)
    if sample is not None:
        duels = [duels[index] for index in sampled(range(len(duels)), sample)]
    model = profile.benchmark_judge(home, judge.backend, judge.model)
    tries = (profile.benchmarks or BenchmarksSettings()).tries
    progress = progress_factory()(f"judging {len(duels)} comparisons")
    judged = asyncio.run(
        judge_duels(home, source, answers, duels, model, profile.limits, tries, progress)
    )
    return judge.name, agreement_labels(judged)
