"""The planner's SFT set: complete plans, plans to be continued, imported interleaved documents.

Planner data is not filtered by scores (paper, section 3.2): the quality of a plan does not depend
on what the generator made of it. Only prompts of split `train` are used.
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

from .comm import import_comm
from .duckdb_session import duckdb_session, query_batches, shard_groups, shard_in
from .settings import CurationSettings, PlannerSettings


@dataclass(frozen=True)
class PlannerReport:
    """Rows by source, and imported documents that were quarantined, as (id, reason)."""

    rows: dict[str, int]
    quarantined: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _PlannedRequest:
    """A plan with its request.

    Attributes:
        images: step number -> chosen image of the trajectory.
        completed_steps: leading steps that the trajectory carried out.
    """

    prompt_id: str
    plan_id: str
    request: str
    input_images: list[str]
    reasoning: str
    steps: tuple[PlanStep, ...]
    trajectory_id: str | None = None
    images: Mapping[int, str] = field(default_factory=dict)
    completed_steps: int = 0


def build_planner_sft(home: Home, settings: CurationSettings) -> tuple[pa.Table, PlannerReport]:
    """The `planner_sft` table (sources plan, continuation, comm, in this order), and a report."""
    planner = settings.planner
    connection = duckdb_session(home)
    groups = shard_groups(connection, "plans")
    plans = [_table(_plan_rows(connection, shards, planner)) for shards in groups]
    continuations = [
        _table(_continuation_rows(connection, shards, planner))
        for shards in groups
        if planner.continuations
    ]
    imported = import_comm(home, planner.comm, planner.interleaved_prompt)
    comm = _table(imported.rows)
    counts = {
        "plan": sum(part.num_rows for part in plans),
        "continuation": sum(part.num_rows for part in continuations),
        "comm": comm.num_rows,
    }
    table = pa.concat_tables([*plans, *continuations, comm])
    return table, PlannerReport(counts, imported.quarantined)


def _table(rows: Iterable[PlannerSftRow]) -> pa.Table:
    return PLANNER_SFT.to_arrow(rows)


def _plan_rows(
    connection: duckdb.DuckDBPyConnection, shards: list[str], settings: PlannerSettings
) -> Iterator[PlannerSftRow]:
    """Request to plan. Input images make it an interleaved request, as in inference."""
    for planned in _planned_requests(connection, _plans_sql(shards)):
        interleaved = bool(planned.input_images)
        template = settings.interleaved_prompt if interleaved else settings.text_prompt
        reasoning = "" if interleaved else planned.reasoning
        request = insert_image_tags(planned.request, len(planned.input_images))
        yield _row(planned, "plan", 0, request, template, Plan(planned.steps, reasoning))


def _continuation_rows(
    connection: duckdb.DuckDBPyConnection, shards: list[str], settings: PlannerSettings
) -> Iterator[PlannerSftRow]:
    """A plan cut at a random step: the steps before, with their images, to the steps after."""
    for planned in _planned_requests(connection, _trajectories_sql(shards)):
        last = min(_usable_steps(planned), len(planned.steps) - 1)
        if last > 0:
            cut = 1 + _hash_choice(f"{settings.seed}/{planned.trajectory_id}", last)
            rest = Plan(planned.steps[cut:])
            request = _request_so_far(planned, cut)
            yield _row(planned, "continuation", cut, request, settings.interleaved_prompt, rest)


def _row(
    planned: _PlannedRequest, source: Any, cut: int, request: str, template: str, plan: Plan
) -> PlannerSftRow:
    prompt = planner_prompt(request, template, steps_given=cut)
    before = planned.steps[:cut]
    images = [planned.images[step.step_number] for step in before if step.prompt is not None]
    return PlannerSftRow(
        row_id=f"{planned.trajectory_id or planned.plan_id}/{source}",
        source=source,
        prompt_id=planned.prompt_id,
        plan_id=planned.plan_id,
        trajectory_id=planned.trajectory_id,
        cut=cut,
        messages=[
            ChatMessageRow(role="user", content=prompt.text),
            ChatMessageRow(role="assistant", content=planner_answer(plan)),
        ],
        images=[*planned.input_images, *images],
        agent_prompt_version=prompt.version,
    )


def _request_so_far(planned: _PlannedRequest, cut: int) -> str:
    """The request and the steps before the cut, each with its image if it has one."""
    lines = [insert_image_tags(planned.request, len(planned.input_images)), "", "Steps so far:"]
    for step in planned.steps[:cut]:
        texts = [escape_tags(text) for text in (step.instruction, step.auxiliary_text) if text]
        image = [IMAGE] if step.prompt is not None else []
        lines.append(
            " ".join([f"{step.step_number}. {escape_tags(step.step_name)}.", *texts, *image])
        )
    return "\n".join(lines)


def _usable_steps(planned: _PlannedRequest) -> int:
    """Number of leading steps that were carried out and have a chosen image or need none."""
    for index, step in enumerate(planned.steps[: planned.completed_steps]):
        if step.prompt is not None and step.step_number not in planned.images:
            return index
    return min(planned.completed_steps, len(planned.steps))


def _hash_choice(key: str, choices: int) -> int:
    """A number in [0, choices) that depends on the key alone."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % choices


def _plans_sql(shards: list[str]) -> str:
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


def _trajectories_sql(shards: list[str]) -> str:
    return f"""
        WITH planned AS ({_plans_sql(shards)}),
        generated AS (
            SELECT trajectory_id, list({{number: step_number, image: image}}) AS images
            FROM attempts WHERE chosen AND {shard_in(shards)} GROUP BY trajectory_id
        )
        SELECT planned.*, trajectory_id, coalesce(images, []) AS images,
               trajectories.steps AS completed_steps
        FROM trajectories JOIN planned USING (plan_id) LEFT JOIN generated USING (trajectory_id)
        WHERE {shard_in(shards, "trajectories.shard")}
        ORDER BY trajectory_id
    """


def _planned_requests(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[_PlannedRequest]:
    for batch in query_batches(connection, sql, 2_000):
        for record in batch.to_pylist():
            yield _PlannedRequest(
                prompt_id=record["prompt_id"],
                plan_id=record["plan_id"],
                request=record["request"],
                input_images=record["input_images"],
                reasoning=record["reasoning"],
                steps=tuple(PlanStep(**step) for step in record["steps"]),
                trajectory_id=record.get("trajectory_id"),
                images={each["number"]: each["image"] for each in record.get("images", [])},
                completed_steps=record.get("completed_steps", 0),
            )
