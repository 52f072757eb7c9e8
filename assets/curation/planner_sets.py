"""The planner's SFT set: complete plans, plans to be continued, imported interleaved documents.

Planner data is not filtered by scores (paper, section 3.2): the quality of a plan does not depend
on what the generator made of it. Only prompts of split `train` are used.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import duckdb
import pyarrow as pa

from inference.agent_prompts.templates import IMAGE, escape_tags, insert_image_tags, planner_prompt
from inference.roles import Plan, PlanStep
from schemas.curation import PLANNER_SFT, PlannerSftRow
from warehouse import Home

from .comm import import_comm, planner_row
from .duckdb_session import curation_session, query_rows, shard_groups, shard_in
from .settings import CurationSettings, PlannerSettings


@dataclass(frozen=True)
class _PlannedRequest:
    """A plan with its request, and what a trajectory made of it."""

    prompt_id: str
    plan_id: str
    request: str
    input_images: list[str]
    reasoning: str
    steps: tuple[PlanStep, ...]
    images: Mapping[int, str]  # step number -> chosen image
    trajectory_id: str | None = None
    completed_steps: int = 0  # leading ones


def build_planner_sft(
    home: Home, settings: CurationSettings
) -> tuple[pa.Table, dict[str, int], list[tuple[str, str]]]:
    """The `planner_sft` table, its rows by source, and quarantined documents as (id, reason)."""
    planner, connection = settings.planner, curation_session(home, settings)
    groups = shard_groups(connection, "plans")
    continued = groups if planner.continuations else []
    imported, quarantined = import_comm(
        home, planner.comm, planner.interleaved_prompt, planner.seed
    )
    rows: dict[str, list[Iterable[PlannerSftRow]]] = {
        "plan": [_plan_rows(connection, shards, planner) for shards in groups],
        "continuation": [_continuation_rows(connection, shards, planner) for shards in continued],
        "comm": [[row for row in imported if not row.cut]],
        "comm_continuation": [[row for row in imported if row.cut]],
    }
    tables = {source: [*map(PLANNER_SFT.to_arrow, parts)] for source, parts in rows.items()}
    counts = {source: sum(part.num_rows for part in parts) for source, parts in tables.items()}
    return pa.concat_tables(chain.from_iterable(tables.values())), counts, quarantined


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
            key = f"{settings.seed}/{planned.trajectory_id}".encode()
            cut = 1 + int.from_bytes(hashlib.sha256(key).digest()[:8]) % last
            request, rest = _request_so_far(planned, cut), Plan(planned.steps[cut:])
            yield _row(planned, "continuation", cut, request, settings.interleaved_prompt, rest)


def _row(
    planned: _PlannedRequest, source: str, cut: int, request: str, template: str, plan: Plan
) -> PlannerSftRow:
    before = planned.steps[:cut]
    images = [planned.images[step.step_number] for step in before if step.prompt is not None]
    return planner_row(
        planner_prompt(request, template, steps_given=cut),
        plan,
        row_id=f"{planned.trajectory_id or planned.plan_id}/{source}",
        source=source,
        prompt_id=planned.prompt_id,
        plan_id=planned.plan_id,
        trajectory_id=planned.trajectory_id,
        cut=cut,
        images=[*planned.input_images, *images],
    )


def _request_so_far(planned: _PlannedRequest, cut: int) -> str:
    """The request and the steps before the cut, each with its image if it has one."""
    lines = [insert_image_tags(planned.request, len(planned.input_images)), "", "Steps so far:"]
    for step in planned.steps[:cut]:
        texts = [f"{step.step_name}.", step.instruction, step.auxiliary_text]
        parts = [f"{step.step_number}.", *(escape_tags(text) for text in texts if text)]
        lines.append(" ".join([*parts, IMAGE] if step.prompt is not None else parts))
    return "\n".join(lines)


def _usable_steps(planned: _PlannedRequest) -> int:
    """Number of leading steps that were carried out and have a chosen image or need none."""
    for index, step in enumerate(planned.steps[: planned.completed_steps]):
        if step.prompt is not None and step.step_number not in planned.images:
            return index
    return min(planned.completed_steps, len(planned.steps))


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
    for record in query_rows(connection, sql):
        record["steps"] = tuple(PlanStep(**step) for step in record["steps"])
        record["images"] = {each["number"]: each["image"] for each in record.get("images", [])}
        yield _PlannedRequest(**record)
