"""What judges and people said of the same answers, compared; another judge is asked about them.

Verdicts of people are those of OpENING's arena, in which two systems' answers are compared.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from inference.calls.ask import QuestionCalls
from inference.calls.hashing import stable_hash
from inference.roles import qualified_name
from schemas import FoundryError
from schemas.trajectories import MODEL_CALLS
from warehouse import Home

from ..core.profile import Profile
from ..core.progress import progress_factory
from ..core.statistics import Agreement, agreement, sampled
from .benchmark import Answer
from .files import read_rows
from .judging import EXACT_JUDGE, model_judge
from .opening import SUFFIX, Opening, Verdict, read_answer
from .results import Run, evaluate_run, run_names
from .runs import official_files, open_benchmark
from .settings import BenchmarkJudgeSettings, BenchmarkRunSettings, BenchmarksSettings

ASSET = "benchmark_agreement"
_Comparison = tuple[str, str, str]  # item, system A, system B


@dataclass(frozen=True)
class Verdicts:
    """What a judge, or people, said; of comparisons, or of the answers of a benchmark run.

    Args:
        labels: case -> label; None: unreadable. Cases of comparisons: (item, system A, system B).
    """

    name: str
    labels: Mapping[Any, str | None]
    run: Run | None = None


class _System(BaseModel):
    name: str


class _ComparisonRow(BaseModel):
    """A row of OpENING's files of verdicts."""

    data_id: str
    system_a: _System = Field(alias="model_A")
    system_b: _System = Field(alias="model_B")
    winner: Verdict


def read_comparisons(path: Path) -> dict[_Comparison, str | None]:
    """An official file of verdicts, people's or a judge's: (item, system A, system B) -> A or B.

    Ties count for the side that they lean to, as in the published agreement; of a comparison
    twice, the last one counts.

    Raises:
        FoundryError: a missing or damaged file or an unknown verdict, in one line.
    """
    rows = read_rows(path, _ComparisonRow)
    return {(r.data_id, r.system_a.name, r.system_b.name): _side(r.winner) for r in rows}


def _side(verdict: str) -> str:
    return verdict.removeprefix("Tie(").removesuffix(")")


def compare_verdicts(first: Verdicts, second: Verdicts, sample: int | None = None) -> Agreement:
    """Agreement on all cases that both judged, or on a sample of them.

    Raises:
        FoundryError: they have no case in common.
    """
    common = sampled([case for case in first.labels if case in second.labels], sample)
    found = agreement({case: first.labels[case] for case in common}, second.labels)
    if found is None:
        raise FoundryError(f"{first.name} and {second.name} have judged nothing in common")
    return found


def read_verdicts(home: Home, name: str) -> Verdicts:
    """The verdicts of an official file of OpENING, or the judgements of a run of this home.

    Raises:
        FoundryError: there is no such file or run.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return Verdicts(path.name, read_comparisons(path))
    if name not in run_names(home):
        known = ", ".join(run_names(home)) or "none"
        raise FoundryError(f"{name} is neither a file nor a run of {home.root}; runs: {known}")
    run = Run.read(home, name)
    return Verdicts(name, run.labels, run=run)


def judge_again(
    first: Verdicts,
    profile: Profile,
    home: Home,
    judge: BenchmarkJudgeSettings,
    source: str | None,
    answers: Path | None,
    sample: int | None,
) -> Verdicts:
    """Another judge's verdicts on the same, or on a sample of them; each question is asked once.

    Args:
        source: the benchmark's official files; None: as the profile says.
        answers: of OpENING's systems, where people's verdicts are compared: the folder with a
            `<system>_output` of every system.
        sample: so many comparisons or answers; None: all.

    Raises:
        FoundryError: the run is judged exactly, official files, an answer or a picture are
            missing, or the judge gave no answer; finished calls are journaled.
    """
    if first.run:
        run = asyncio.run(_judge_run(first.run, profile, home, judge, source, sample))
        return Verdicts(judge.name, run.labels, run=run)
    if source is None or answers is None:
        raise FoundryError("a judge of an official file needs --source and --answers")
    cases = sampled([*first.labels], sample)
    benchmark = Opening(official_files(source))
    labels = asyncio.run(_judge_comparisons(cases, benchmark, profile, home, judge, answers))
    return Verdicts(judge.name, labels)


async def _judge_run(
    first: Run,
    profile: Profile,
    home: Home,
    judge: BenchmarkJudgeSettings,
    source: str | None,
    sample: int | None,
) -> Run:
    """Its answers become no run; but the calls are paid, and in the ledger."""
    if first.judge == EXACT_JUDGE:
        raise FoundryError(f"{first.name} is judged exactly: no judge is asked anything")
    settings = profile.benchmarks or BenchmarksSettings()
    given = settings.run.get(first.benchmark, BenchmarkRunSettings())
    official = given.model_copy(update={"source": source} if source else {})
    benchmark = open_benchmark(first.benchmark, official, home)
    answers, judge = sampled(first.answers, sample), judge.at(benchmark.judge_temperature)
    name = f"{first.name}-by-{stable_hash('judge', judge.name)[:8]}"
    asked = model_judge(profile, home, judge, progress_factory()(f"judging {len(answers)} answers"))
    rows, calls = await asked.judge(benchmark, answers, name)
    home.lake.write(MODEL_CALLS, calls, f"{ASSET}-{name}")
    return evaluate_run(name, benchmark, first.system, judge.name, answers, rows, settings)


async def _judge_comparisons(
    cases: Sequence[_Comparison],
    benchmark: Opening,
    profile: Profile,
    home: Home,
    settings: BenchmarkJudgeSettings,
    answers: Path,
) -> dict[_Comparison, str | None]:
    progress = progress_factory()(f"judging {len(cases)} comparisons")
    judge = model_judge(profile, home, settings, progress)
    shard = f"opening-{stable_hash('judge', qualified_name(judge.model))[:8]}"
    with QuestionCalls(home, ASSET, shard, judge.model, judge.limits) as calls:

        async def judge_one(case: _Comparison) -> str | None:
            item_id, *systems = case
            pair = [_answer(answers, name, item_id) for name in systems]
            call = await asyncio.to_thread(benchmark.compare, item_id, *pair)
            judged = await judge.ask(calls, item_id, call)
            return _side(judged.value) if isinstance(judged.value, str) else None

        try:
            labels = await calls.map(judge_one, cases, judge.limits.agents, progress)
            return dict(zip(cases, labels, strict=True))
        finally:
            home.lake.write(MODEL_CALLS, calls.ledger(), f"{ASSET}-{shard}")


def _answer(answers: Path, system: str, item_id: str) -> Answer:
    folder = answers / f"{system}{SUFFIX}"
    answer = read_answer(folder, item_id)
    if answer is None:
        raise FoundryError(f"{folder}: has no answer to item {item_id}; unpack it")
    return answer
