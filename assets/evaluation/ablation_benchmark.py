"""The ablation on a benchmark of the field: on UEval, the paper's table 5 as it is printed.

Every variant is a system of the benchmark. Its answers, judgements and results are in the tables of
group `benchmarks`, in partitions of their own, so that `interleave report` has them as well. What
is there is not made again, and variants that are the same system share its run.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from inference.calls.hashing import stable_hash
from inference.calls.progress import Progress
from inference.roles import Roles
from schemas import FoundryError
from schemas.benchmarks import BENCHMARK_ANSWERS, BENCHMARK_RESULTS, JUDGEMENTS, BenchmarkScoreRow
from schemas.trajectories import MODEL_CALLS
from warehouse import Home

from ..benchmarks.answering import answer_with
from ..benchmarks.judging import ASSET
from ..benchmarks.results import stored_rows
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
    return [run.judge, origin_of(run.items)]


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
    runs, agents = BenchmarkRuns.of(foundry), AgentFactory(foundry)

    async def measure_all() -> dict[Variant, list[BenchmarkScoreRow]]:
        """In one event loop, to which models in this process belong."""
        by_system: dict[str, list[BenchmarkScoreRow]] = {}
        scores = {}
        for variant in variants:
            roles, profile = agents.roles(variant), _profile_of(variant, foundry.settings)
            loop = profile.loop.model_dump(mode="json")
            key = stable_hash(roles.names, loop, runs.settings.seed)[:8]
            if key not in by_system:
                run = runs.run_of(benchmark, f"{_PREFIX}{variant.name}-{key}")
                by_system[key] = await _run(runs, run, roles, profile, progress)
            scores[variant] = by_system[key]
        return scores

    return asyncio.run(measure_all())


def _profile_of(variant: Variant, profile: Profile) -> Profile:
    """The profile with the loop of a variant."""
    t_max = variant.with_t_max(profile.evaluation.t_max).t_max
    loop = profile.loop.model_copy(update={"t_max": t_max, "on_exhausted": "last"})
    return profile.model_copy(update={"loop": loop})


async def _run(
    runs: BenchmarkRuns, run: BenchmarkRun, roles: Roles, profile: Profile, progress: Progress
) -> list[BenchmarkScoreRow]:
    """Make what the lake lacks of a run; its metrics of items."""
    home, seed = runs.home, runs.settings.seed
    for shard in run.shards:
        if home.lake.rows(BENCHMARK_ANSWERS, shard.answers) != len(shard.items):
            answers = await answer_with(home, profile, roles, shard, seed, progress)
            home.lake.write(BENCHMARK_ANSWERS, answers.rows, shard.answers)
            if answers.quarantine:
                count = f"{len(answers.quarantine)} items of {shard.answers} have no answer"
                raise FoundryError(f"{count}; run again: {answers.quarantine[0].reason}")
        if not home.lake.exists(JUDGEMENTS, shard.judgements):
            rows = stored_rows(home, BENCHMARK_ANSWERS, [shard.answers])
            judgements, calls = await runs.judge(shard, rows, progress)
            home.lake.write(MODEL_CALLS, calls, f"{ASSET}-{shard.judgements}")
            home.lake.write(JUDGEMENTS, judgements, shard.judgements)
    found = runs.evaluate(run)
    found.write(home)
    return found.scores


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
