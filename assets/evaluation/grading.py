"""Who grades plans and outcomes: a judge by rubrics, the exact grader of a world, or nobody."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from inference.calls.ask import Reply, ask_all
from inference.calls.hashing import content_digest
from inference.judge_grader import open_judge, rubrics_from_rows
from inference.questions import Rubric, RubricQuestion
from inference.roles import Grader, PlanRequest, qualified_name
from inference.sketch_world.grader import SketchGrader
from schemas import Table
from schemas.curation import CRITIC_RL, PLANNER_RL
from schemas.prompts import PROMPTS, PromptRow
from schemas.training import RUBRICS, CriterionKind, RubricRow
from schemas.trajectories import MODEL_CALLS
from warehouse import Home

from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from ..core.metadata import model_call_costs, table_metadata
from ..core.node import Node
from ..core.profile import Profile
from ..core.progress import progress_of
from ..prompts.pack_loader import world_of
from .items import heldout_requests, pack_name
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
    journal = JUDGE, pack_name(profile)
    with open_judge(foundry.home, profile, judge, journal, profile.limits) as grader:
        yield grader


def has_exact_grader(profile: Profile) -> bool:
    """Whether the pack's world has a grader of its own."""
    return world_of(profile.pack) == "sketch"


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


_SHOWN = 12
RUBRIC_SET = Node(
    name="rubrics",
    group="data_sets",
    description="What the judge of a profile that has one asks; written once by a model, also for "
    "requests whose plans or trajectories reward a training.",
    tables=(RUBRICS,),
    ledger=(MODEL_CALLS,),
    deps=("prompts", "trajectories", "planner_rl", "critic_rl"),
    arrows=("trajectories", "planner_rl", "critic_rl"),
    sections=(
        "pack",
        "evaluation.judge",
        "evaluation.heldout",
        "evaluation.heldout_category",
        "evaluation.seed",
    ),
    pool="agents",
)
rubrics_checks = blocking_checks(RUBRIC_SET)


@dg.asset(**RUBRIC_SET.asset_args())
def rubrics(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    profile = foundry.settings
    judge = profile.evaluation.judge
    if judge is None:
        note = {"rubrics": "the profile has no `evaluation.judge`, so none are needed"}
        return RUBRIC_SET.record(context, foundry, {RUBRICS: []}, note)
    writer = profile.respondent("rubric_writer", foundry.home, judge.backend, judge.rubrics)
    pack, limits = pack_name(profile), profile.limits
    prompts = heldout_requests(foundry.home, pack, profile.evaluation)
    prompts += _reinforced_requests(foundry)
    questions = {row.prompt_id: _question(foundry.home, row) for row in prompts}
    asked = RUBRIC_SET.name, pack, writer, questions, limits, progress_of(context)
    written, calls = asyncio.run(ask_all(foundry.home, *asked))
    name, texts = qualified_name(writer), {row.prompt_id: row.text for row in prompts}
    rows = [row for each, reply in written.items() for row in rubric_rows(each, reply, name)]
    shown = [
        {"request": texts[row.prompt_id], "of": row.kind, "criterion": row.criterion}
        for row in rows[:_SHOWN]
    ]
    failures = {each: reply.failure for each, reply in written.items() if reply.failure}
    metadata = {
        "requests": len(written),
        "criteria": table_metadata(shown),
        "without_rubric": table_metadata(
            [{"prompt": each, "reason": reason} for each, reason in failures.items()]
        ),
        **model_call_costs(calls),
    }
    tables: dict[Any, Any] = {RUBRICS: rows, MODEL_CALLS: calls}
    return RUBRIC_SET.record(context, foundry, tables, metadata)


def _question(home: Home, row: PromptRow) -> RubricQuestion:
    return RubricQuestion(PlanRequest(row.text, tuple(map(home.images.get, row.input_images))))


def _reinforced_requests(foundry: FoundryResource) -> list[PromptRow]:
    """Requests of the sets whose trainings a grader rewards, if any."""
    training, tables = foundry.settings.training, list[Table]()
    if training and training.planner_rl:
        tables.append(PLANNER_RL)
    if training and training.critic_rl.reward.of != "step":
        tables.append(CRITIC_RL)
    names = {row.prompt_id for table in tables for row in foundry.rows(table)}
    where = pc.field("prompt_id").isin(pa.array(sorted(names), pa.string()))
    rows = foundry.home.lake.read(PROMPTS, where=where).to_pylist()
    return [PromptRow.model_validate(row) for row in rows]


def rubric_rows(prompt_id: str, reply: Reply[Rubric], writer: str) -> list[RubricRow]:
    """A row per criterion; none where the model wrote no rubric."""
    rubric = reply.answer or Rubric(())
    by_kind: dict[CriterionKind, tuple[str, ...]] = {
        "image": rubric.image_criteria,
        "text": rubric.text_criteria,
    }
    shared: dict[str, Any] = {
        "prompt_id": prompt_id,
        "rubric_version": content_digest([by_kind, rubric.image_count])[:12],
        "image_count": rubric.image_count,
        "writer": writer,
    }
    return [
        RubricRow(kind=kind, number=number, criterion=criterion, **shared)
        for kind, criteria in by_kind.items()
        for number, criterion in enumerate(criteria, 1)
    ]
