"""The benchmarks by name, and the runs of a profile: their shards and partitions of the lake.

A run is one system's answers to one benchmark, judged by one judge. Names of partitions:
`BENCHMARK.SYSTEM.NUMBER` of answers, `BENCHMARK.SYSTEM.JUDGE.NUMBER` of judgements, and
`BENCHMARK.SYSTEM.JUDGE` of results, where the judge is eight digits of a hash.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from inference.backends.checkpoint.manifest import promoted
from inference.calls.hashing import content_digest, stable_hash
from inference.calls.progress import Progress
from inference.roles import qualified_name
from schemas import FoundryError
from schemas.benchmarks import BENCHMARK_ANSWERS, JUDGEMENTS, BenchmarkAnswerRow, JudgementRow
from schemas.trajectories import ModelCallRow, Role
from warehouse import Home

from ..core.foundry import FoundryResource
from ..core.profile import Profile
from .answering import Shard
from .benchmark import Benchmark, Item
from .comm import CoMM
from .geneval2 import GenEval2
from .judging import EXACT_JUDGE, judge_exactly, model_judge
from .opening import Opening
from .results import Run, evaluate_run, stored_rows
from .rise import Rise
from .settings import BenchmarkRunSettings, BenchmarksSettings
from .sketch import SketchBenchmark
from .sketch_tasks import SHAPES
from .ueval import UEval
from .weave import Weave
from .wise import Wise

_SKETCH = "sketch-"
_OFFICIAL: dict[str, Callable[[Path], Benchmark]] = {
    "ueval": UEval,
    "comm-task1": partial(CoMM, task=1),
    "comm-task2": partial(CoMM, task=2),
    "comm-task3": partial(CoMM, task=3),
    "comm-task4": partial(CoMM, task=4),
    "wise-legacy": partial(Wise, version="legacy"),
    "wise-verified": partial(Wise, version="verified"),
    "rise": partial(Rise, scorer="original"),
    "rise-fixed": partial(Rise, scorer="fixed"),
    "opening": Opening,
    "geneval2": GenEval2,
    "weave": Weave,
}
NAMES = (*_OFFICIAL, *(f"{_SKETCH}{shape}" for shape in SHAPES))  # of all benchmarks
Kind = Literal["answers", "judgements", "results"]  # of partitions


def open_benchmark(name: str, settings: BenchmarkRunSettings, home: Home) -> Benchmark:
    """A benchmark with all its items.

    Raises:
        FoundryError: there is none of this name, it needs a `source`, or its files are damaged.
    """
    if name not in NAMES:
        raise FoundryError(f"no benchmark {name}; there are: {', '.join(NAMES)}")
    if name.startswith(_SKETCH):
        folder, shape = home.local / "benchmarks" / name, name.removeprefix(_SKETCH)
        items = settings.limit or 40
        return SketchBenchmark.open(shape, folder, settings.seed, settings.difficulty, items)
    if settings.source is None:
        raise FoundryError(
            f"benchmark {name} needs its official files: name their folder with --source, or as "
            f"`benchmarks.run.{name}.source` in the profile"
        )
    source = official_files(settings.source)
    return _open_official(name, source, source.stat().st_mtime_ns)


def official_files(source: str) -> Path:
    """A local file or folder; else the snapshot of a data set on the Hub, by its id.

    Raises:
        FoundryError: there is neither.
    """
    path = Path(source).expanduser()
    if path.exists():
        return path
    if path.is_absolute() or len(path.parts) != 2:
        raise FoundryError(
            f"{source}: does not exist; name a copy of the official files, or a data set on the "
            "Hub, such as zlab-princeton/UEval"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(source, repo_type="dataset"))
    except (OSError, HFValidationError) as error:
        reason = str(error).splitlines()[0]
        raise FoundryError(
            f"{source}: no such file or folder, nor to be had from the Hub ({reason}); copy the "
            "official files"
        ) from error


@lru_cache(maxsize=8)
def _open_official(name: str, source: Path, _changed_at: int) -> Benchmark:
    """A benchmark of the field, from a copy of its official files; read once a process."""
    return _OFFICIAL[name](source)


def sample(items: Sequence[Item], limit: int | None) -> list[Item]:
    """At most `limit` items, as many of every group, the same in every run; in their order."""
    if limit is None or limit >= len(items):
        return list(items)
    groups: dict[str, list[Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: stable_hash("sample", item.item_id)):
        groups[item.group].append(item)
    rounds = zip_longest(*groups.values())
    taken = [item for each in rounds for item in each if item][:limit]
    chosen = {item.item_id for item in taken}
    return [item for item in items if item.item_id in chosen]


@dataclass(frozen=True)
class BenchmarkRun:
    """A benchmark, a system and a judge.

    Args:
        shard_size: items of a Dagster partition.
        imported: where an imported system's answers are.
    """

    benchmark: Benchmark
    system: str
    judge: str
    items: Sequence[Item]
    shard_size: int
    imported: Path | None = None

    @property
    def name(self) -> str:
        """Partition of its results."""
        exact = self.judge == EXACT_JUDGE
        judge = EXACT_JUDGE if exact else stable_hash("judge", self.judge)[:8]
        return f"{self.benchmark.name}.{self.system}.{judge}"

    @property
    def shards(self) -> list[Shard]:
        answers, shards = f"{self.benchmark.name}.{self.system}", []
        for number, start in enumerate(range(0, len(self.items), self.shard_size)):
            items = self.items[start : start + self.shard_size]
            names = f"{answers}.{number:04d}", f"{self.name}.{number:04d}", self.name
            shards.append(Shard(self.benchmark, self.system, items, *names))
        return shards


@dataclass(frozen=True)
class BenchmarkRuns:
    """The runs of a profile's section `benchmarks`.

    Args:
        agents: who plans, draws and judges: backend and model, or `name@version` of a checkpoint.
    """

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
        roles, in_use = foundry.roles, promoted(foundry.home)
        trained = settings.agents != "profile" and in_use.keys() == {"planner", "critic"}
        planner = in_use["planner"] if trained else qualified_name(roles.planner)
        critic = in_use["critic"] if trained else qualified_name(roles.critic)
        agents = planner, qualified_name(roles.generator), critic
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

    def _runs(self, name: str, settings: BenchmarkRunSettings) -> Iterator[BenchmarkRun]:
        own = self.run_of(name, self.system)
        if settings.generate:
            yield own
        for system, source in settings.imported.items():
            path, count = Path(source).expanduser(), len(own.items)  # read once
            yield replace(own, system=system, shard_size=count, imported=path)

    def run_of(self, name: str, system: str) -> BenchmarkRun:
        """The run of any system of ours, on the items that the profile names.

        Raises:
            FoundryError: as `all`, or there is no such benchmark.
        """
        settings = self.settings.run.get(name, BenchmarkRunSettings())
        benchmark = open_benchmark(name, settings, self.home)
        items = sample(benchmark.items, settings.limit)
        judge = self._judge(benchmark)
        return BenchmarkRun(benchmark, system, judge, items, self.settings.shard_size)

    def _judge(self, benchmark: Benchmark) -> str:
        if isinstance(benchmark, SketchBenchmark):
            return EXACT_JUDGE
        if self.settings.judge is None:
            raise FoundryError(
                f"benchmark {benchmark.name} needs a judge: name one with --judge, or as "
                "`benchmarks.judge` in the profile"
            )
        return self.settings.judge.at(benchmark.judge_temperature).name

    def partitions(self, kind: Kind) -> list[str]:
        names = (getattr(shard, kind) for run in self.all for shard in run.shards)
        return list(dict.fromkeys(names))

    def find(self, kind: Kind, partition: str) -> tuple[BenchmarkRun, Shard]:
        """The first run that a partition belongs to, and its (first) shard."""
        for run in self.all:
            for shard in run.shards:
                if getattr(shard, kind) == partition:
                    return run, shard
        raise FoundryError(
            f"no benchmark of this profile has a partition {partition}: it is of another"
        )

    async def judge(
        self, shard: Shard, answers: Sequence[BenchmarkAnswerRow], progress: Progress
    ) -> tuple[list[JudgementRow], list[ModelCallRow]]:
        """Judge the answers of a shard, exactly where the benchmark can; also all calls for it."""
        if isinstance(shard.benchmark, SketchBenchmark):
            return judge_exactly(shard.benchmark, self.home.images, answers), []
        assert self.settings.judge is not None  # a run has made sure
        named = self.settings.judge.at(shard.benchmark.judge_temperature)
        judge = model_judge(self.profile, self.home, named, progress)
        return await judge.judge(shard.benchmark, answers, shard.judgements)

    def evaluate(self, run: BenchmarkRun) -> Run:
        """A run, with the numbers that follow from its answers and judgements in the lake."""
        names = [(shard.answers, shard.judgements) for shard in run.shards]
        answers = stored_rows(self.home, BENCHMARK_ANSWERS, [name for name, _ in names])
        judged = stored_rows(self.home, JUDGEMENTS, [name for _, name in names])
        judged_by = run.system, run.judge
        return evaluate_run(run.name, run.benchmark, *judged_by, answers, judged, self.settings)


def origin_of(items: Sequence[Item]) -> str:
    """Hash of items: texts, groups, and sizes of their picture files."""
    files = [[path.stat().st_size for path in item.image_files] for item in items]
    texts = [[item.item_id, item.group, item.text] for item in items]
    return content_digest([texts, files])[:32]
