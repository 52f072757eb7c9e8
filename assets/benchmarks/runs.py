"""The benchmark runs of a profile: their shards, and which partitions of the lake they are in.

A run is one system's answers to one benchmark, judged by one judge. Names of partitions:
`BENCHMARK.SYSTEM.NUMBER` of answers, `BENCHMARK.SYSTEM.JUDGE.NUMBER` of judgements, and
`BENCHMARK.SYSTEM.JUDGE` of results, where the judge is eight digits of a hash.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from inference.backends.checkpoint.manifest import AgentRole, promoted
from inference.calls.hashing import content_digest, stable_hash
from inference.calls.progress import Progress
from inference.roles import Roles, qualified_name
from schemas import FoundryError
from schemas.benchmarks import BENCHMARK_ANSWERS, JUDGEMENTS, BenchmarkAnswerRow
from schemas.trajectories import Role
from warehouse import Home

from ..core.foundry import FoundryResource
from ..core.profile import Profile
from .answering import Shard
from .benchmark import Benchmark, ExactlyJudged, Item
from .catalogue import open_benchmark, sample, shards
from .judging import EXACT_JUDGE, JudgedAnswers, ModelJudge, judge_exactly
from .results import Run, evaluate_run, stored_rows
from .settings import BenchmarkRunSettings, BenchmarksSettings


@dataclass(frozen=True)
class BenchmarkRun:
    """A benchmark, a system and a judge. `imported`: where an imported system's answers are."""

    benchmark: Benchmark
    system: str
    judge: str
    shard_items: list[list[Item]]
    imported: Path | None = None

    @property
    def name(self) -> str:
        """Partition of its results."""
        return f"{self.benchmark.name}.{self.system}.{self._judge_hash}"

    @property
    def shards(self) -> list[Shard]:
        prefix = f"{self.benchmark.name}.{self.system}"
        return [
            Shard(self.benchmark, self.system, f"{prefix}.{number:04d}", items)
            for number, items in enumerate(self.shard_items)
        ]

    def judgements_of(self, shard: Shard) -> str:
        """Partition of the judgements of a shard."""
        return f"{self.name}.{shard.name.rpartition('.')[2]}"

    @property
    def _judge_hash(self) -> str:
        exact = self.judge == EXACT_JUDGE
        return EXACT_JUDGE if exact else stable_hash("judge", self.judge)[:8]


@dataclass(frozen=True)
class BenchmarkRuns:
    """The runs of a profile's section `benchmarks`."""

    home: Home
    profile: Profile
    settings: BenchmarksSettings
    agents: tuple[str, ...]
    trained: bool

    @classmethod
    def of(cls, foundry: FoundryResource) -> "BenchmarkRuns":
        """Raises FoundryError: the profile has no section `benchmarks`."""
        settings = foundry.settings.benchmarks
        if settings is None:
            raise FoundryError(
                f"profile {foundry.settings.name} has no section benchmarks: add one, such as "
                "`benchmarks: {run: {sketch-interleaved: {}}}`, or use `interleave evaluate`"
            )
        in_use = promoted(foundry.home)
        trained = settings.agents != "profile" and in_use.keys() == {"planner", "critic"}
        agents = tuple(_agents(foundry.roles, {**in_use} if trained else {}))
        return cls(foundry.home, foundry.settings, settings, agents, trained)

    @property
    def system(self) -> str:
        """Name of the profile's system: with another model or setting of the loop it is another."""
        settings = [self.agents, self.profile.loop.model_dump(mode="json"), self.settings.seed]
        return f"{self.profile.name}-{stable_hash('system', settings)[:8]}"

    @property
    def roles(self) -> tuple[Role, ...]:
        """Those that the profile's own models have in the system; trained agents have the rest."""
        return ("generator",) if self.trained else ("planner", "generator", "critic")

    @cached_property
    def all(self) -> list[BenchmarkRun]:
        """Raises FoundryError: official files are missing or damaged, or there is no judge."""
        return [run for name, each in self.settings.run.items() for run in self._runs(name, each)]

    async def judge(
        self,
        run: BenchmarkRun,
        answers: Sequence[BenchmarkAnswerRow],
        partition: str,
        progress: Progress,
    ) -> JudgedAnswers:
        """Judge answers of a run, exactly where the benchmark can.

        Args:
            partition: of the judgements, by which calls are journaled.
        """
        if isinstance(run.benchmark, ExactlyJudged):
            return judge_exactly(run.benchmark, self.home.images, answers)
        assert self.settings.judge is not None  # a run has made sure
        named = self.settings.judge.at(run.benchmark.judge_temperature)
        model = self.profile.respondent("benchmark_judge", self.home, named.backend, named.model)
        limits, tries = self.profile.limits, self.settings.tries
        judge = ModelJudge(self.home, model, limits, tries, progress)
        return await judge.judge(run.benchmark, answers, partition)

    def evaluate(self, run: BenchmarkRun) -> Run:
        """A run, with the numbers that follow from its answers and judgements in the lake."""
        answers = stored_rows(self.home, BENCHMARK_ANSWERS, [shard.name for shard in run.shards])
        judged = stored_rows(self.home, JUDGEMENTS, list(map(run.judgements_of, run.shards)))
        judged_by = run.system, run.judge
        return evaluate_run(run.name, run.benchmark, *judged_by, answers, judged, self.settings)

    def of_answers(self, partition: str) -> tuple[BenchmarkRun, Shard]:
        """The first run that a partition of answers belongs to, and its shard."""
        return self._find(partition, lambda run, shard: shard.name)

    def of_judgements(self, partition: str) -> tuple[BenchmarkRun, Shard]:
        return self._find(partition, lambda run, shard: run.judgements_of(shard))

    def of_results(self, partition: str) -> BenchmarkRun:
        return self._find(partition, lambda run, shard: run.name)[0]

    def _find(
        self, partition: str, name_of: Callable[[BenchmarkRun, Shard], str]
    ) -> tuple[BenchmarkRun, Shard]:
        for run in self.all:
            for shard in run.shards:
                if name_of(run, shard) == partition:
                    return run, shard
        raise FoundryError(
            f"no benchmark of this profile has a partition {partition}: it is of another"
        )

    def run_of(self, name: str, system: str) -> BenchmarkRun:
        """The run of any system of ours, on the items that the profile names.

        Raises:
            FoundryError: as `all`, or there is no such benchmark.
        """
        settings = self.settings.run.get(name, BenchmarkRunSettings())
        benchmark = open_benchmark(name, settings, self.home)
        items = sample(benchmark.items, settings.limit)
        parts = shards(items, self.settings.shard_size)
        return BenchmarkRun(benchmark, system, self._judge(benchmark), parts)

    def _runs(self, name: str, settings: BenchmarkRunSettings) -> Iterator[BenchmarkRun]:
        own = self.run_of(name, self.system)
        if settings.generate:
            yield own
        items = [item for part in own.shard_items for item in part]
        for system, source in settings.imported.items():
            path = Path(source).expanduser()
            yield replace(own, system=system, shard_items=[items], imported=path)  # read once

    def _judge(self, benchmark: Benchmark) -> str:
        if isinstance(benchmark, ExactlyJudged):
            return EXACT_JUDGE
        if self.settings.judge is None:
            raise FoundryError(
                f"benchmark {benchmark.name} needs a judge: name one with --judge, or as "
                "`benchmarks.judge` in the profile"
            )
        return self.settings.judge.at(benchmark.judge_temperature).name


def _agents(roles: Roles, trained: Mapping[AgentRole, str]) -> Iterator[str]:
    """Who plans, draws and judges, by backend and model, or `name@version` of a checkpoint."""
    yield trained.get("planner") or qualified_name(roles.planner)
    yield qualified_name(roles.generator)
    yield trained.get("critic") or qualified_name(roles.critic)


def origin_of(items: Sequence[Item]) -> str:
    """Hash of items: texts, groups, and sizes of their picture files."""
    files = [[path.stat().st_size for path in item.image_files] for item in items]
    texts = [[item.item_id, item.group, item.text] for item in items]
    return content_digest([texts, files])[:32]
