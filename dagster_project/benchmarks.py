"""`interleave evaluate`: benchmark runs of a profile, as the assets of group benchmarks."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import ValidationError

from assets.benchmarks.assets import ANSWERS, JUDGEMENT_SET, RESULTS
from assets.benchmarks.benchmark import AnswerStep
from assets.benchmarks.runs import BenchmarkRuns
from assets.benchmarks.settings import (
    BenchmarkJudgeSettings,
    BenchmarkRunSettings,
    BenchmarksSettings,
)
from assets.core.foundry import FoundryResource
from assets.core.profile import Profile
from assets.trajectories.estimate import RoleEstimate, estimate_benchmark
from inference.backends.providers.settings import BenchmarkJudgeModel
from schemas import FoundryError
from schemas.benchmarks import BENCHMARK_ANSWERS, BENCHMARK_RESULTS, JUDGEMENTS, BenchmarkResultRow
from schemas.errors import first_problem
from schemas.yaml_config import ConfigModel
from warehouse import EncodedImage

from .run import run_partitioned


def with_runs(
    foundry: FoundryResource,
    names: Sequence[str],
    judge: str | None = None,
    answers: Path | None = None,
    system: str | None = None,
    **changes: Any,
) -> FoundryResource:
    """The lake and profile with exactly the runs of a command.

    Args:
        names: of benchmarks; none: those of the profile.
        judge: `BACKEND/MODEL`; None: the profile's.
        answers: of another system `system`, in the benchmark's official layout.
        changes: of `BenchmarkRunSettings`; None: as the profile has it.

    Raises:
        FoundryError: options that contradict each other, or the profile cannot be read.
    """
    if (answers is None) != (system is None):
        raise FoundryError("another system's answers need --answers FOLDER and --system NAME")
    profile = foundry.unsized
    given = profile.benchmarks or BenchmarksSettings()
    if not (names := names or list(given.run)):
        raise FoundryError(
            "name a benchmark, such as sketch-interleaved; the profile has none of its own "
            "(`benchmarks.run`)"
        )
    known = {name: value for name, value in changes.items() if value is not None}
    if answers and system:
        folder = str(answers.expanduser().absolute())
        known |= {"generate": False, "imported": {system: folder}}
    own = {name: given.run.get(name, BenchmarkRunSettings()) for name in names}
    runs = {name: settings.model_copy(update=known) for name, settings in own.items()}
    update = {"run": runs, "judge": judge_settings(profile, judge)}
    return _with_sections(foundry, benchmarks=given.model_copy(update=update))


def with_ablation_on(benchmark: str, foundry: FoundryResource) -> FoundryResource:
    """The lake and profile whose ablation is measured on a benchmark.

    Raises:
        FoundryError: the profile cannot be read, or names neither files nor a judge for it.
    """
    evaluation = foundry.unsized.evaluation
    ablation = evaluation.ablation.model_copy(update={"benchmark": benchmark})
    evaluation = evaluation.model_copy(update={"ablation": ablation})
    changed = _with_sections(with_runs(foundry, [benchmark]), evaluation=evaluation)
    BenchmarkRuns.of(changed.without_keys()).run_of(benchmark, "")
    return changed


def _with_sections(foundry: FoundryResource, **sections: ConfigModel) -> FoundryResource:
    values = json.loads(foundry.sections) if foundry.sections else {}
    values |= {name: section.model_dump(mode="json") for name, section in sections.items()}
    return FoundryResource(
        profile=foundry.profile, root=foundry.root, size=foundry.size, sections=json.dumps(values)
    )


def judge_settings(profile: Profile, named: str | None) -> BenchmarkJudgeSettings | None:
    """The named judge (`BACKEND/MODEL`), else the profile's, else its judge by rubrics.

    Raises:
        FoundryError: the name is not of that form.
    """
    if named is not None:
        backend, _, model = named.partition("/")
        try:
            return BenchmarkJudgeSettings.model_validate(
                {"backend": backend, "model": {"model": model}}
            )
        except ValidationError as error:
            hint = "give BACKEND/MODEL, such as openai/gpt-4.1"
            raise FoundryError(f"--judge {named}: {first_problem(error)}; {hint}") from error
    rubrics = profile.evaluation.judge
    if (profile.benchmarks and profile.benchmarks.judge) or rubrics is None:
        return profile.benchmarks.judge if profile.benchmarks else None
    shared = rubrics.model.model_dump(include={"model", "endpoints", "max_tokens"})
    own = BenchmarkJudgeModel.model_validate(shared)
    return BenchmarkJudgeSettings(backend=rubrics.backend, model=own)


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
        missing = [shard for shard in run.shards if shard.answers not in answered]
        requests = 0 if run.imported else sum(len(shard.items) for shard in missing)
        unjudged = [shard for shard in run.shards if shard.judgements not in judged]
        example = (AnswerStep("A text.", EncodedImage.white((64, 64))),)
        questions = sum(
            len(run.benchmark.calls(item, example, {}))
            for shard in unjudged
            for item in shard.items
        )
        judge = runs.settings.judge and runs.settings.judge.at(run.benchmark.judge_temperature)
        asked = estimate_benchmark(foundry, requests, runs.roles, judge, questions)
        yield RunEstimate(run.name, run.judge, len(run.items), questions, asked)
