"""The planner's SFT set: whole plans, plans to be continued, imported interleaved data.

Planner data is not filtered by scores (paper, section 3.2): a plan is good or bad whatever the
generator made of it. Only prompts of split `train` are used.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from inference.agent_prompts import (
    IMAGE,
    escape_tags,
    insert_image_tags,
    planner_answer,
    planner_prompt,
)
from inference.roles import Plan, PlanStep
from schemas.curation import PLANNER_SFT, ChatMessageRow, PlannerSftRow
from warehouse import Home

from ..core.duckdb_session import arrow_batches, duckdb_session, shard_groups, shard_in
from .comm import import_comm
from .reports import PlannerReport
from .settings import CurationSettings, PlannerSettings

Record = Mapping[str, Any]


@dataclass(frozen=True)
class _PlannedTrajectory:
    """A plan with its request and, of a trajectory, the chosen picture of each drawn step."""

    prompt_id: str
    plan_id: str
    request: str
    input_images: list[str]
    reasoning: str
    steps: tuple[PlanStep, ...]
    trajectory_id: str | None = None
    pictures: Mapping[int, str] = field(default_factory=dict)
    carried_out: int = 0


def build_planner_sft(home: Home, settings: CurationSettings) -> tuple[pa.Table, PlannerReport]:
    """The `planner_sft` table: sources plan, continuation and comm, in this order."""
    planner = settings.planner
    connection = duckdb_session(home)
    groups = shard_groups(connection, "plans")
    plans = [_table(_whole_plans(connection, shards, planner)) for shards in groups]
    continued = [
        _table(_continuations(connection, shards, planner))
        for shards in groups
        if planner.continuations
    ]
    imported = import_comm(home, planner.comm, planner.interleaved_prompt)
    comm = _table(imported.rows)
    counts = {
        "plan": sum(part.num_rows for part in plans),
        "continuation": sum(part.num_rows for part in continued),
        "comm": comm.num_rows,
    }
    return pa.concat_tables([*plans, *continued, comm]), PlannerReport(counts, imported.quarantined)


def _table(rows: Iterable[PlannerSftRow]) -> pa.Table:
    return PLANNER_SFT.to_arrow(rows)


def _whole_plans(
    connection: duckdb.DuckDBPyConnection, shards: list[str], settings: PlannerSettings
) -> Iterator[PlannerSftRow]:
    """Request to plan. Input pictures make it an interleaved request, as at inference."""
    for told in _told(connection, _planned(shards)):
        interleaved = bool(told.input_images)
        name = settings.interleaved_prompt if interleaved else settings.text_prompt
        reasoning = "" if interleaved else told.reasoning
        request = insert_image_tags(told.request, len(told.input_images))
        yield _row(told, "plan", 0, request, name, Plan(told.steps, reasoning))


def _continuations(
    connection: duckdb.DuckDBPyConnection, shards: list[str], settings: PlannerSettings
) -> Iterator[PlannerSftRow]:
    """A plan cut at a random step: what came before, with its pictures, to what comes next."""
    for told in _told(connection, _pictured(shards)):
        last = min(_shown_steps(told), len(told.steps) - 1)
        if last > 0:
            cut = 1 + _draw(f"{settings.seed}/{told.trajectory_id}", last)
            rest = Plan(told.steps[cut:])
            request = _so_far(told, cut)
            yield _row(told, "continuation", cut, request, settings.interleaved_prompt, rest)


def _row(
    told: _PlannedTrajectory, source: Any, cut: int, request: str, name: str, plan: Plan
) -> PlannerSftRow:
    question = planner_prompt(request, name, steps_given=cut)
    given = told.steps[:cut]
    shown = [told.pictures[step.step_number] for step in given if step.prompt is not None]
    return PlannerSftRow(
        row_id=f"{told.trajectory_id or told.plan_id}/{source}",
        source=source,
        prompt_id=told.prompt_id,
        plan_id=told.plan_id,
        trajectory_id=told.trajectory_id,
        cut=cut,
        messages=[
            ChatMessageRow(role="user", content=question.text),
            ChatMessageRow(role="assistant", content=planner_answer(plan)),
        ],
        images=[*told.input_images, *shown],
        agent_prompt_version=question.version,
    )


def _so_far(told: _PlannedTrajectory, cut: int) -> str:
    """The request and the steps before the cut, each drawn one with its picture."""
    lines = [insert_image_tags(told.request, len(told.input_images)), "", "Steps so far:"]
    for step in told.steps[:cut]:
        texts = [escape_tags(text) for text in (step.instruction, step.auxiliary_text) if text]
        picture = [IMAGE] if step.prompt is not None else []
        lines.append(
            " ".join([f"{step.step_number}. {escape_tags(step.step_name)}.", *texts, *picture])
        )
    return "\n".join(lines)


def _shown_steps(told: _PlannedTrajectory) -> int:
    """Leading steps that were carried out: text-only, or with a chosen picture."""
    for place, step in enumerate(told.steps[: told.carried_out]):
        if step.prompt is not None and step.step_number not in told.pictures:
            return place
    return min(told.carried_out, len(told.steps))


def _draw(name: str, choices: int) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % choices


def _planned(shards: list[str]) -> str:
    return f"""
        SELECT plan_id, any_value(prompt_id) AS prompt_id, any_value(prompts.text) AS request,
               any_value(input_images) AS input_images, any_value(reasoning) AS reasoning,
               list({{step_number: step_number, step_name: step_name, instruction: instruction,
                      prompt: plans.prompt, auxiliary_text: auxiliary_text}}
                    ORDER BY step_number) AS steps
        FROM plans JOIN prompts USING (prompt_id)
        WHERE prompts.split = 'train' AND {shard_in(shards, "plans.shard")}
        GROUP BY plan_id ORDER BY plan_id
    """


def _pictured(shards: list[str]) -> str:
    return f"""
        WITH planned AS ({_planned(shards)}),
        pictured AS (
            SELECT trajectory_id, list({{number: step_number, image: image}}) AS pictures
            FROM attempts WHERE chosen AND {shard_in(shards)} GROUP BY trajectory_id
        )
        SELECT planned.*, trajectory_id, coalesce(pictures, []) AS pictures,
               trajectories.steps AS done
        FROM trajectories JOIN planned USING (plan_id) LEFT JOIN pictured USING (trajectory_id)
        WHERE {shard_in(shards, "trajectories.shard")}
        ORDER BY trajectory_id
    """


def _told(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[_PlannedTrajectory]:
    for batch in arrow_batches(connection, sql, 2_000):
        for record in batch.to_pylist():
            yield _PlannedTrajectory(
                prompt_id=record["prompt_id"],
                plan_id=record["plan_id"],
                request=record["request"],
                input_images=record["input_images"],
                reasoning=record["reasoning"],
                steps=tuple(PlanStep(**step) for step in record["steps"]),
                trajectory_id=record.get("trajectory_id"),
                pictures={p["number"]: p["image"] for p in record.get("pictures", [])},
                carried_out=record.get("done", 0),
            )
