"""`interleave evaluate`: benchmark runs of a profile, as the assets of group benchmarks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from pydantic import ValidationError

from assets.benchmarks.assets import ANSWERS, JUDGEMENT_SET, RESULTS
from assets.benchmarks.runs import BenchmarkRun, BenchmarkRuns
from assets.benchmarks.settings import (
    BenchmarkJudgeSettings,
    BenchmarkRunSettings,
    BenchmarksSettings,
)
from assets.core.foundry import FoundryResource
from assets.core.profile import FOLDER, Profile, load_profile
from assets.trajectories.estimate import RoleEstimate, estimate_benchmark
from inference.backends.providers.settings import BenchmarkJudgeModel
from inference.calls.hashing import stable_hash
from schemas import FoundryError
from schemas.benchmarks import BENCHMARK_ANSWERS, BENCHMARK_RESULTS, JUDGEMENTS, BenchmarkResultRow
from schemas.errors import first_problem
from warehouse import Home
from warehouse.atomic import atomic_write

from .run import run_partitioned


@dataclass(frozen=True)
class EvaluateOptions:
    """What a command changes in a profile's section `benchmarks`; None: as it is there.

    Args:
        source: folder or file, or id of a data set on the Hub.
        judge: `BACKEND/MODEL`.
        answers: of another system `system`, in the benchmark's official layout.
    """

    names: Sequence[str]
    source: str | None = None
    limit: int | None = None
    judge: str | None = None
    answers: Path | None = None
    system: str | None = None
    seed: int | None = None
    difficulty: int | None = None


def prepare(profile: str, home: Home, options: EvaluateOptions) -> FoundryResource:
    """The lake, with a profile that has exactly the runs of a command, kept as a file in the home.

    Raises:
        FoundryError: options that contradict each other, or the profile cannot be read.
    """
    if (options.answers is None) != (options.system is None):
        raise FoundryError("another system's answers need --answers FOLDER and --system NAME")
    settings = _settings(load_profile(profile), options)
    values = _profile_values(profile) | {"benchmarks": settings.model_dump(mode="json")}
    return FoundryResource(profile=_stored(values, home), root=home.root)


def profile_of_ablation(profile: str, home: Home, benchmark: str) -> str:
    """The profile whose ablation is measured on a benchmark, kept as a file in the home.

    Raises:
        FoundryError: the profile cannot be read, or names neither files nor a judge for it.
    """
    settings = _settings(load_profile(profile), EvaluateOptions([benchmark]))
    values = _profile_values(profile)
    sections = values.setdefault("evaluation", {}) or {}
    sections["ablation"] = {**(sections.get("ablation") or {}), "benchmark": benchmark}
    values |= {"evaluation": sections, "benchmarks": settings.model_dump(mode="json")}
    changed = _stored(values, home)
    BenchmarkRuns.of(FoundryResource(profile=changed, root=home.root).without_keys()).run_of(
        benchmark, ""
    )
    return changed


def _profile_values(profile: str) -> dict[str, Any]:
    path = Path(profile) if profile.endswith((".yaml", ".yml")) else FOLDER / f"{profile}.yaml"
    values: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return values


def _stored(values: dict[str, Any], home: Home) -> str:
    name = f"{values['name']}-{stable_hash(values)[:8]}.yaml"
    changed = home.local / "benchmarks" / "profiles" / name
    atomic_write(changed, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    return str(changed)


def evaluate_benchmarks(
    foundry: FoundryResource,
    instance: dg.DagsterInstance,
    announce: Callable[[str], object] = str,
    force: bool = False,
) -> list[BenchmarkResultRow]:
    """Bring all runs of a profile up to date; their results.

    Raises:
        FoundryError: official files are missing, a model gave no answer, a failed check.
    """
    nodes = [ANSWERS, JUDGEMENT_SET, RESULTS]
    run_partitioned(foundry, instance, nodes, announce, force)
    runs = BenchmarkRuns.of(foundry).all
    return [row for run in runs for row in foundry.rows(BENCHMARK_RESULTS, run.name)]


@dataclass(frozen=True)
class RunEstimate:
    """What is still to do for a run; `roles`: calls and USD by model, priced or not."""

    run: str
    judge: str
    items: int
    questions: int
    roles: list[RoleEstimate]


def estimates(foundry: FoundryResource) -> Iterator[RunEstimate]:
    """Answers that are missing, and what their judge is asked at least: the first round of
    questions about answers of one step. Exact judges are asked nothing. Needs no key.
    """
    runs = BenchmarkRuns.of(foundry.without_keys())
    answered = set(foundry.home.lake.partitions(BENCHMARK_ANSWERS))
    judged = set(foundry.home.lake.partitions(JUDGEMENTS))
    for run in runs.all:
        missing = [shard for shard in run.shards if shard.name not in answered]
        requests = 0 if run.imported else sum(len(shard.items) for shard in missing)
        unjudged = [shard for shard in run.shards if run.judgements_of(shard) not in judged]
        questions = sum(_questions(run, item) for shard in unjudged for item in shard.items)
        judge = runs.settings.judge and runs.settings.judge.at(run.benchmark.judge_temperature)
        asked = estimate_benchmark(foundry, requests, runs.roles, judge, questions)
        items = sum(len(shard.items) for shard in run.shards)
        yield RunEstimate(run.name, run.judge, items, questions, asked)


def _questions(run: BenchmarkRun, item: Any) -> int:
    from assets.benchmarks.benchmark import AnswerStep
    from warehouse import EncodedImage

    example = (AnswerStep("A text.", EncodedImage.white((64, 64))),)
    return len(run.benchmark.calls(item, example, {}))


def _settings(profile: Profile, options: EvaluateOptions) -> BenchmarksSettings:
    given = profile.benchmarks or BenchmarksSettings()
    names = options.names or list(given.run)
    if not names:
        raise FoundryError(
            "name a benchmark, such as sketch-interleaved; the profile has none of its own "
            "(`benchmarks.run`)"
        )
    runs = {name: _run_settings(given.run.get(name), options) for name in names}
    judge = judge_settings(profile, options.judge)
    return given.model_copy(update={"run": runs, "judge": judge})


def absolute_source(source: str) -> str:
    """A path that holds in any folder; an id on the Hub stays as it is."""
    path = Path(source).expanduser()
    return str(path.absolute()) if path.exists() else source


def _run_settings(
    given: BenchmarkRunSettings | None, options: EvaluateOptions
) -> BenchmarkRunSettings:
    changes: dict[str, Any] = {
        "source": options.source and absolute_source(options.source),
        "limit": options.limit,
        "seed": options.seed,
        "difficulty": options.difficulty,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if options.answers and options.system:
        folder = str(options.answers.expanduser().absolute())
        changes |= {"generate": False, "imported": {options.system: folder}}
    base = (given or BenchmarkRunSettings()).model_dump()
    try:
        return BenchmarkRunSettings.model_validate(base | changes)
    except ValidationError as error:
        raise FoundryError(first_problem(error)) from error


def judge_settings(profile: Profile, named: str | None) -> BenchmarkJudgeSettings | None:
    """The named judge (`BACKEND/MODEL`), else the profile's, else its judge by rubrics.

    Raises:
        FoundryError: the name is not of that form.
    """
    if named is None and profile.benchmarks and profile.benchmarks.judge:
        return profile.benchmarks.judge
    rubrics = profile.evaluation.judge
    if named is None and rubrics:
        model = BenchmarkJudgeModel(
            model=rubrics.model.model,
            endpoints=rubrics.model.endpoints,
            max_tokens=rubrics.model.max_tokens,
        )
        return BenchmarkJudgeSettings(backend=rubrics.backend, model=model)
    if named is None:
        return None
    backend, _, model_name = named.partition("/")
    try:
        return BenchmarkJudgeSettings.model_validate(
            {"backend": backend, "model": {"model": model_name}}
        )
    except ValidationError as error:
        hint = "give BACKEND/MODEL, such as openai/gpt-4.1"
        raise FoundryError(f"--judge {named}: {first_problem(error)}; {hint}") from error
