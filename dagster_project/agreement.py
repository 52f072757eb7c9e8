"""`interleave agreement`: judges compared with people, and with each other."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.benchmarks.arena import ASSET, judge_duels
from assets.benchmarks.catalogue import official_files, open_benchmark
from assets.benchmarks.judging import EXACT_JUDGE, judge_answers
from assets.benchmarks.opening import duel_labels, read_duels
from assets.benchmarks.report import Run, run_names
from assets.benchmarks.results import evaluate_run
from assets.benchmarks.settings import (
    BenchmarkJudgeSettings,
    BenchmarkRunSettings,
    BenchmarksSettings,
)
from assets.core.profile import Profile
from assets.core.progress import progress_factory
from assets.core.statistics import Agreement, agreement, disagreements, sampled
from inference.calls.hashing import stable_hash
from inference.questions import Respondent
from schemas import FoundryError
from schemas.trajectories import MODEL_CALLS
from warehouse import Home

Labels = Mapping[Any, str | None]  # case -> label; None: unreadable


@dataclass(frozen=True)
class Verdicts:
    """What a judge, or people, said; of an official file of OpENING, or of a benchmark run."""

    name: str
    labels: Labels
    file: Path | None = None
    run: Run | None = None


@dataclass(frozen=True)
class Compared:
    """Two judges on the same cases; `differing`: those on which they disagree."""

    result: Agreement
    differing: list[Any]


def compare_verdicts(first: Verdicts, second: Verdicts, sample: int | None = None) -> Compared:
    """Agreement on all cases that both judged, or on a sample of them.

    Raises:
        FoundryError: they have no case in common.
    """
    common = [case for case in first.labels if case in second.labels]
    chosen = common if sample is None else sampled(common, sample)
    labels = {case: first.labels[case] for case in chosen}
    if not chosen:
        raise FoundryError(f"{first.name} and {second.name} have judged nothing in common")
    return Compared(agreement(labels, second.labels), disagreements(labels, second.labels))


def read_verdicts(home: Home, name: str) -> Verdicts:
    """The verdicts of an official file of OpENING (ties count for the side that they lean to), or
    the judgements of a run of this home.

    Raises:
        FoundryError: there is no such file or run.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return Verdicts(path.name, duel_labels(read_duels(path)), file=path)
    if name not in run_names(home):
        known = ", ".join(run_names(home)) or "none"
        raise FoundryError(f"{name} is neither a file nor a run of {home.root}; runs: {known}")
    run = Run.read(home, name)
    return Verdicts(name, run.labels, run=run)


@dataclass(frozen=True)
class SecondJudge:
    """A judge that is asked about what others have judged; its answers become no run.

    Args:
        source: the benchmark's official files; None: as the profile says.
        answers: of OpENING's systems, where people's verdicts are compared.
        sample: so many comparisons or answers; None: all.
    """

    profile: Profile
    home: Home
    judge: BenchmarkJudgeSettings
    source: str | None
    answers: Path | None
    sample: int | None

    def judge_same(self, first: Verdicts) -> Verdicts:
        """Its own verdicts on the same, or on a sample of them; each question is asked once.

        Raises:
            FoundryError: the run is judged exactly, official files are missing, or the judge gave
                no answer.
        """
        if first.run:
            run = asyncio.run(self._judge_run(first.run))
            return Verdicts(self.judge.name, run.labels, run=run)
        assert first.file is not None
        return Verdicts(self.judge.name, self._judge_comparisons(first.file))

    async def _judge_run(self, first: Run) -> Run:
        if first.judge == EXACT_JUDGE:
            raise FoundryError(f"{first.name} is judged exactly: no judge is asked anything")
        given = self._settings.run.get(first.benchmark, BenchmarkRunSettings())
        files = given.model_copy(update={"source": self.source} if self.source else {})
        benchmark = open_benchmark(first.benchmark, files, self.home)
        answers = self._sampled(first.answers)
        judge = self.judge.at(benchmark.judge_temperature)
        name = f"{first.name}-by-{stable_hash('judge', judge.name)[:8]}"
        judged = await judge_answers(
            self.home,
            benchmark,
            answers,
            self._model(judge),
            name,
            self.profile.limits,
            self._settings.tries,
            progress_factory()(f"judging {len(answers)} answers"),
        )
        self.home.lake.write(MODEL_CALLS, judged.calls, f"{ASSET}-{name}")
        result = evaluate_run(
            benchmark, first.system, judge.name, answers, judged.rows, self._settings
        )
        return Run(name, result.results, result.scores, answers, judged.rows)

    def _judge_comparisons(self, file: Path) -> Labels:
        if self.source is None or self.answers is None:
            raise FoundryError("a judge of an official file needs --source and --answers")
        duels = self._sampled(read_duels(file))
        files = official_files(self.source)
        limits, tries = self.profile.limits, self._settings.tries
        progress = progress_factory()(f"judging {len(duels)} comparisons")
        judging = judge_duels(
            self.home, files, self.answers, duels, self._model(self.judge), limits, tries, progress
        )
        return duel_labels(asyncio.run(judging))

    @property
    def _settings(self) -> BenchmarksSettings:
        return self.profile.benchmarks or BenchmarksSettings()

    def _model(self, judge: BenchmarkJudgeSettings) -> Respondent:
        return self.profile.respondent("benchmark_judge", self.home, judge.backend, judge.model)

    def _sampled(self, cases: list[Any]) -> list[Any]:
        if self.sample is None:
            return cases
        return [cases[index] for index in sampled(range(len(cases)), self.sample)]
