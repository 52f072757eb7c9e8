"""The ablation on a benchmark of the field: on UEval, the paper's table 5 as it is printed.

Every variant is a system of the benchmark. Its answers, judgements and results are in the tables of
group `benchmarks`, in partitions of their own, so that `interleave report` has them as well. What
is there is not made again, and variants that are the same system share its run.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inference.calls.hashing import stable_hash
from inference.calls.progress import Progress
from inference.roles import Roles
from schemas import FoundryError
from schemas.benchmarks import BENCHMARK_ANSWERS, BENCHMARK_RESULTS, JUDGEMENTS, BenchmarkScoreRow
from schemas.trajectories import MODEL_CALLS
from warehouse import Home

from ..benchmarks.answering import Shard, answer_with
from ..benchmarks.judging import ASSET
from ..benchmarks.runs import BenchmarkRun, BenchmarkRuns, origin_of
from ..core.foundry import FoundryResource
from ..core.profile import Profile
from ..core.statistics import Observation
from .agents import AgentFactory
from .metrics import Summary
from .settings import EvaluationSettings
from .variants import Variant

_PREFIX = "ablation-"


def ablation_page(home: Home, benchmark: str) -> Path:
    """The Markdown file with the table."""
    return home.exports / "benchmarks" / f"{_PREFIX}{benchmark}.md"


def benchmark_inputs(foundry: FoundryResource, benchmark: str) -> list[str]:
    """What the numbers follow from besides agents and settings: items and judge."""
    run = BenchmarkRuns.of(foundry).run_of(benchmark, "")
    return [run.judge, origin_of([item for items in run.shard_items for item in items])]


def benchmark_hashes(foundry: FoundryResource, benchmark: str) -> list[str | None]:
    """Of the results of all variants."""
    lake = foundry.home.lake
    names = (name for name in lake.partitions(BENCHMARK_RESULTS) if f".{_PREFIX}" in name)
    own = [name for name in sorted(names) if name.startswith(f"{benchmark}.")]
    return [lake.content_hash(BENCHMARK_RESULTS, name) for name in own]


def measure_on_benchmark(
    foundry: FoundryResource, variants: Sequence[Variant], benchmark: str, progress: Progress
) -> dict[Variant, list[BenchmarkScoreRow]]:
    """Metrics of every item, by variant; stored after each.

    Raises FoundryError where a checkpoint or official files are missing, or a model gave no answer;
    finished calls are journaled.
    """
    measuring = _Measuring(foundry, BenchmarkRuns.of(foundry), benchmark, progress)
    return asyncio.run(measuring.all(variants))


def benchmark_summary(
    scores: dict[Variant, list[BenchmarkScoreRow]], settings: EvaluationSettings
) -> Summary:
    """The metrics of items, with intervals over items."""
    values: dict[str, dict[str, dict[Observation, float]]] = {}
    for variant, rows in scores.items():
        own = values.setdefault(variant.name, {})
        for row in rows:
            if row.value is not None:
                measured = Observation(row.item_id, row.item_id, variant.training_seed)
                own.setdefault(row.metric, {})[measured] = row.value
    return Summary(values, settings)


@dataclass(frozen=True)
class _Measuring:
    """In one event loop, to which models in this process belong."""

    foundry: FoundryResource
    runs: BenchmarkRuns
    benchmark: str
    progress: Progress
    _scores: dict[str, list[BenchmarkScoreRow]] = field(default_factory=dict)  # by system's hash

    async def all(self, variants: Sequence[Variant]) -> dict[Variant, list[BenchmarkScoreRow]]:
        agents = AgentFactory(self.foundry)
        return {variant: await self._measure(variant, agents) for variant in variants}

    async def _measure(self, variant: Variant, agents: AgentFactory) -> list[BenchmarkScoreRow]:
        settings = self.foundry.settings
        roles = agents.roles(variant)
        t_max = variant.with_t_max(settings.evaluation.t_max).t_max
        loop = settings.loop.model_copy(update={"t_max": t_max, "on_exhausted": "last"})
        key = stable_hash(roles.names, loop.model_dump(mode="json"), self.runs.settings.seed)[:8]
        if key not in self._scores:
            run = self.runs.run_of(self.benchmark, f"{_PREFIX}{variant.name}-{key}")
            profile = settings.model_copy(update={"loop": loop})
            self._scores[key] = await self._run(run, roles, profile)
        return self._scores[key]

    async def _run(
        self, run: BenchmarkRun, roles: Roles, profile: Profile
    ) -> list[BenchmarkScoreRow]:
        for shard in run.shards:
            await self._answer(shard, roles, profile)
            await self._judge(run, shard)
        found = self.runs.evaluate(run)
        found.write(self.foundry.home)
        return found.scores

    async def _answer(self, shard: Shard, roles: Roles, profile: Profile) -> None:
        home, seed = self.foundry.home, self.runs.settings.seed
        if home.lake.rows(BENCHMARK_ANSWERS, shard.name) == len(shard.items):
            return
        answers = await answer_with(home, profile, roles, shard, seed, self.progress)
        home.lake.write(BENCHMARK_ANSWERS, answers.rows, shard.name)
        if answers.quarantine:
            reason = answers.quarantine[0].reason
            count = f"{len(answers.quarantine)} items of {shard.name} have no answer"
            raise FoundryError(f"{count}; run again: {reason}")

    async def _judge(self, run: BenchmarkRun, shard: Shard) -> None:
        lake, name = self.foundry.home.lake, run.judgements_of(shard)
        if lake.exists(JUDGEMENTS, name):
            return
        answers = self.foundry.rows(BENCHMARK_ANSWERS, shard.name)
        judged = await self.runs.judge(run, answers, name, self.progress)
        lake.write(MODEL_CALLS, judged.calls, f"{ASSET}-{name}")
        lake.write(JUDGEMENTS, judged.rows, name)
