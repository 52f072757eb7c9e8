"""The planner's sets. SFT: complete plans, plans to be continued, imported interleaved documents.
RL: requests alone.

Planner data is not filtered by scores (paper, section 3.2): the quality of a plan does not depend
on what the generator made of it. Only prompts of split `train` are used.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from inference.agent_prompts.templates import (
    IMAGE,
    RenderedPrompt,
    escape_tags,
    insert_image_tags,
    planner_prompt,
)
from inference.calls.hashing import stable_hash
from inference.roles import Plan, PlanStep
from schemas.curation import PLANNER_RL, PLANNER_SFT, ChatMessageRow, PlannerRlRow, PlannerSftRow
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, TRAJECTORIES
from warehouse import Home, Lake

from ..core.duckdb_session import query_rows
from .comm import import_comm, planner_row
from .settings import CurationSettings, PlannerSettings
from .shards import Columns, ShardedLake, group_shards, pack_rows, shard_session, unpacked_rows

_REQUESTED = ("prompt_id", "text", "input_images")
_GROUP_ROWS = 100_000  # of plans; rows are in order of their plans within a group
_BATCH_ROWS = 2_000
_PLANNED: Columns = {
    PROMPTS: ("prompt_id", "text", "input_images", "split"),
    PLANS: tuple(name for name in PLANS.columns if name not in ("shard", "planner")),
}
_CONTINUED: Columns = {
    **_PLANNED,
    TRAJECTORIES: ("trajectory_id", "plan_id", "steps"),
    ATTEMPTS: ("trajectory_id", "step_number", "image", "chosen"),
}
_PLANS_SQL = """
    SELECT plan_id, any_value(prompt_id) AS prompt_id, any_value(prompts.text) AS request,
           any_value(input_images) AS input_images, any_value(reasoning) AS reasoning,
           list({step_number: step_number, step_name: step_name, instruction: instruction,
                 prompt: plans.prompt, auxiliary_text: auxiliary_text}
                ORDER BY step_number) AS steps
    FROM plans JOIN prompts USING (prompt_id)
    WHERE prompts.split = 'train'
    GROUP BY plan_id ORDER BY plan_id
"""
_TRAJECTORIES_SQL = f"""
    WITH planned AS ({_PLANS_SQL}),
    generated AS (
        SELECT trajectory_id, list({{number: step_number, image: image}}) AS images
        FROM attempts WHERE chosen GROUP BY trajectory_id
    )
    SELECT planned.*, trajectory_id, coalesce(images, []) AS images,
           trajectories.steps AS completed_steps
    FROM trajectories JOIN planned USING (plan_id) LEFT JOIN generated USING (trajectory_id)
    ORDER BY trajectory_id
"""


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
    home: Home, settings: CurationSettings, shards: Sequence[str] | None = None
) -> tuple[pa.RecordBatchReader, list[tuple[str, str]]]:
    """Rows (computed while they are read), and quarantined documents as (id, reason).

    Args:
        shards: those to use; None: all of the lineage.
    """
    planner, curated = settings.planner, ShardedLake.of(home, settings, shards)
    groups = group_shards(curated.row_counts(PLANS), _GROUP_ROWS)
    imported, quarantined = import_comm(
        home, planner.comm, planner.interleaved_prompt, planner.seed
    )
    documents = sorted(imported, key=lambda row: row.cut > 0)
    own = (curated.map(_packed_rows, groups, source) for source in _SOURCES)
    parts = chain(*own, [_packed(documents)])
    return unpacked_rows(PLANNER_SFT, parts), quarantined


def build_planner_rl(home: Home, settings: PlannerSettings, pack: str) -> pa.Table:
    """Requests of a pack that no teacher has planned: GRPO needs no answers to learn from."""
    names = {*home.lake.partitions(PROMPTS)} - {*home.lake.partitions(PLANS)}
    where = (pc.field("split") == "train") & (pc.field("pack") == pack)
    prompts = home.lake.read(PROMPTS, sorted(names), _REQUESTED, where).to_pylist()
    by_hash = sorted(prompts, key=lambda row: stable_hash("planner_rl", row["prompt_id"]))
    chosen = by_hash[: settings.rl_prompts]
    return PLANNER_RL.to_arrow(_request_row(row, settings) for row in chosen)


def _request_row(row: Mapping[str, Any], settings: PlannerSettings) -> PlannerRlRow:
    question = _question(row["text"], row["input_images"], settings)
    return PlannerRlRow(
        row_id=row["prompt_id"],
        prompt_id=row["prompt_id"],
        request=row["text"],
        messages=[ChatMessageRow(role="user", content=question.text)],
        images=row["input_images"],
        agent_prompt_version=question.version,
    )


def _question(request: str, images: Sequence[str], settings: PlannerSettings) -> RenderedPrompt:
    """What the planner is asked. Input images make it an interleaved request, as in inference."""
    template = settings.interleaved_prompt if images else settings.text_prompt
    return planner_prompt(insert_image_tags(request, len(images)), template)


def _packed_rows(lake: Lake, settings: CurationSettings, source: str, shards: list[str]) -> bytes:
    columns, make_rows = _SOURCES[source]
    connection = shard_session(lake, settings, shards, columns)
    return _packed(make_rows(connection, settings.planner))


def _packed(rows: Iterable[PlannerSftRow]) -> bytes:
    remaining = iter(rows)
    batches = iter(lambda: [*islice(remaining, _BATCH_ROWS)], [])
    tables = map(PLANNER_SFT.to_arrow, batches)
    return pack_rows(PLANNER_SFT, chain.from_iterable(each.to_batches() for each in tables))


def plan_rows(prompts: pa.Table, plans: pa.Table, settings: PlannerSettings) -> pa.Table:
    """The rows of some plans that are not in the lake."""
    with duckdb.connect() as connection:
        connection.register(PROMPTS.name, prompts)
        connection.register(PLANS.name, plans)
        return PLANNER_SFT.to_arrow(_plan_rows(connection, settings))


def _plan_rows(
    connection: duckdb.DuckDBPyConnection, settings: PlannerSettings
) -> Iterator[PlannerSftRow]:
    """Request to plan."""
    for planned in _planned_requests(connection, _PLANS_SQL):
        question = _question(planned.request, planned.input_images, settings)
        reasoning = "" if planned.input_images else planned.reasoning
        yield _row(planned, "plan", 0, question, Plan(planned.steps, reasoning))


def _continuation_rows(
    connection: duckdb.DuckDBPyConnection, settings: PlannerSettings
) -> Iterator[PlannerSftRow]:
    """A plan cut at a random step: the steps before, with their images, to the steps after."""
    for planned in _planned_requests(connection, _TRAJECTORIES_SQL):
        last = min(_usable_steps(planned), len(planned.steps) - 1)
        if last > 0:
            key = f"{settings.seed}/{planned.trajectory_id}".encode()
            cut = 1 + int.from_bytes(hashlib.sha256(key).digest()[:8]) % last
            request, rest = _request_so_far(planned, cut), Plan(planned.steps[cut:])
            question = planner_prompt(request, settings.interleaved_prompt, steps_given=cut)
            yield _row(planned, "continuation", cut, question, rest)


_SOURCES = {"plan": (_PLANNED, _plan_rows), "continuation": (_CONTINUED, _continuation_rows)}


def _row(
    planned: _PlannedRequest, source: str, cut: int, question: RenderedPrompt, plan: Plan
) -> PlannerSftRow:
    before = planned.steps[:cut]
    images = [planned.images[step.step_number] for step in before if step.prompt is not None]
    return planner_row(
        question,
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


def _planned_requests(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[_PlannedRequest]:
    for record in query_rows(connection, sql):
        record["steps"] = tuple(PlanStep(**step) for step in record["steps"])
        record["images"] = {each["number"]: each["image"] for each in record.get("images", [])}
        yield _PlannedRequest(**record)
