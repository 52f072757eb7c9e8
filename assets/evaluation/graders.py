"""Who grades plans and outcomes: a judge by rubrics, the exact grader of a world, or nobody."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from inference.calls.ask import JudgeCalls
from inference.judge_grader import JudgeGrader
from inference.roles import Grader, Rubric
from inference.sketch_world.grader import SketchGrader
from schemas.training import RUBRICS, RubricRow

from ..core.foundry import FoundryResource
from ..core.profile import Profile
from ..prompts.pack_loader import load_pack
from .items import pack_name
from .metrics import METRICS

JUDGE = "judge"  # the asset in whose journal judgements are stored
_GRADED_METRICS = [metric.name for metric in METRICS.values() if metric.source == "grader"]


@contextmanager
def open_grader(foundry: FoundryResource) -> Iterator[Grader | None]:
    """The grader of a profile: its judge, else that of the pack's world, if it has one.

    Raises FoundryError where the judge's endpoint lacks a key or a price.
    """
    profile = foundry.settings
    judge = profile.evaluation.judge
    if judge is None:
        yield SketchGrader() if has_exact_grader(profile) else None
        return
    model = profile.judge(foundry.home, judge.backend, judge.model)
    with JudgeCalls(foundry.home, JUDGE, pack_name(profile), model, profile.limits) as calls:
        yield JudgeGrader(calls, rubrics_from_rows(foundry.rows(RUBRICS)))


def has_exact_grader(profile: Profile) -> bool:
    """Whether the pack's world (`reader` in its taxonomy.yaml) has a grader of its own."""
    return _world_of(profile.pack) == "sketch"


def describe_grader(foundry: FoundryResource) -> str:
    """One line for an evaluation's metadata: who graded, or which metrics are missing."""
    profile = foundry.settings
    if judge := profile.evaluation.judge:
        rubrics = len(rubrics_from_rows(foundry.rows(RUBRICS)))
        return f"judge {judge.backend}/{judge.model.model}, by rubrics of {rubrics} requests"
    if has_exact_grader(profile):
        return SketchGrader.name
    missing = f"these are missing: {', '.join(_GRADED_METRICS)}"
    return f"none for pack {profile.pack}, so {missing}; `evaluation.judge` gives them"


def rubrics_from_rows(rows: list[RubricRow]) -> dict[str, Rubric]:
    """Prompt id -> rubric, whose criteria are in the order of their numbers."""
    by_prompt: dict[str, list[RubricRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.number):
        by_prompt[row.prompt_id].append(row)
    return {prompt_id: _rubric(criteria) for prompt_id, criteria in by_prompt.items()}


def _rubric(rows: list[RubricRow]) -> Rubric:
    images, texts = (
        tuple(row.criterion for row in rows if row.kind == kind) for kind in ("image", "text")
    )
    return Rubric(images, texts, rows[0].image_count)


@cache
def _world_of(pack: str) -> str | None:
    return load_pack(pack).taxonomy.reader
