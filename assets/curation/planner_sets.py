"""The planner's sets. SFT: complete plans, plans to be continued, imported interleaved documents.
RL: requests alone.

Planner data is not filtered by scores (paper, section 3.2): the quality of a plan does not depend
on what the generator made of it. Only prompts of split `train` are used.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inference.agent_prompts.templates import (
    IMAGE,
    RenderedPrompt,
    insert_image_tags,
    planner_prompt,
    version_of,
)
from inference.calls.hashing import stable_hash
from schemas.curation import PLANNER_RL, PLANNER_SFT, ChatMessageRow, PlannerRlRow
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, TRAJECTORIES
from warehouse import Home, Lake

from .comm import import_comm
from .settings import CurationSettings, PlannerSettings
from .shards import (
    Columns,
    ShardedLake,
    as_rows,
    group_shards,
    joined_rows,
    query_batches,
    shard_session,
    text_session,
)
from .texts import literal, planner_question_sql

_REQUESTED = ("prompt_id", "text", "input_images")
_GROUP_ROWS = 100_000  # of plans; rows are in order of their plans within a group
_CUTS = range(1, 17)  # whose prompts DuckDB writes; Python does for longer plans
_PLANNED: Columns = {
    PROMPTS: ("prompt_id", "text", "input_images", "split"),
    PLANS: tuple(name for name in PLANS.columns if name not in ("shard", "planner")),
}
_CONTINUED: Columns = {
    **_PLANNED,
    TRAJECTORIES: ("trajectory_id", "plan_id", "steps"),
    ATTEMPTS: ("trajectory_id", "step_number", "image", "chosen"),
}
# SQL over columns `request` (with its image tags), `cut`, `reasoning`, `steps` (JSON), and the ids.
_ROWS = """
    SELECT row_id, '{source}' AS source, prompt_id, plan_id, trajectory_id, cut,
           [{{'role': 'user', 'content': {question}}},
            {{'role': 'assistant', 'content': planner_answer(reasoning, steps)}}] AS messages,
           images, {version} AS agent_prompt_version
    FROM ({planned})
"""
_STEPS = """
    SELECT plans.*, row_number() OVER (PARTITION BY plan_id ORDER BY step_number) AS position,
           text, input_images, plan_step(
               step_number, step_name, instruction, plans.prompt, auxiliary_text) AS step
    FROM plans JOIN prompts USING (prompt_id) WHERE prompts.split = 'train'
"""
_PLANS_SQL = f"""
    SELECT plan_id || '/plan' AS row_id, any_value(prompt_id) AS prompt_id, plan_id,
           CAST(NULL AS VARCHAR) AS trajectory_id, 0 AS cut, any_value(input_images) AS images,
           insert_image_tags(any_value(text), len(images)) AS request,
           if(len(images) > 0, '', any_value(reasoning)) AS reasoning,
           string_agg(step, ', ' ORDER BY position) AS steps
    FROM ({_STEPS}) GROUP BY plan_id ORDER BY plan_id
"""
# A step is usable if it and those before it were carried out and have their images.
_CONTINUATIONS_SQL = f"""
    WITH generated AS (
        SELECT trajectory_id, step_number, any_value(image) AS image
        FROM attempts WHERE chosen GROUP BY ALL
    ),
    carried_out AS (
        SELECT planned.*, trajectory_id, image, trajectories.steps AS completed,
               concat_ws(' ', step_number || '.', escape_tags(step_name || '.'),
                         nullif(escape_tags(instruction), ''),
                         nullif(escape_tags(auxiliary_text), ''),
                         CASE WHEN prompt IS NOT NULL THEN '{IMAGE}' END) AS line
        FROM trajectories JOIN ({_STEPS}) AS planned USING (plan_id)
        LEFT JOIN generated USING (trajectory_id, step_number)
    ),
    cuts AS (
        SELECT trajectory_id, least(
                   any_value(completed), count(*) - 1,
                   min(position) FILTER (prompt IS NOT NULL AND image IS NULL) - 1) AS last,
               CAST(1 + CAST('0x' || left(sha256('{{seed}}/' || trajectory_id), 16) AS UBIGINT)
                   % CAST(greatest(last, 1) AS UBIGINT) AS BIGINT) AS cut
        FROM carried_out GROUP BY trajectory_id
    )
    SELECT trajectory_id || '/continuation' AS row_id, any_value(prompt_id) AS prompt_id,
           any_value(plan_id) AS plan_id, trajectory_id, any_value(cut) AS cut,
           list_concat(any_value(input_images), coalesce(
               list(image ORDER BY position) FILTER (position <= cut AND prompt IS NOT NULL), []
           )) AS images,
           insert_image_tags(any_value(text), len(any_value(input_images)))
           || chr(10) || chr(10) || 'Steps so far:' || chr(10)
           || string_agg(line, chr(10) ORDER BY position) FILTER (position <= cut) AS request,
           '' AS reasoning,
           string_agg(step, ', ' ORDER BY position) FILTER (position > cut) AS steps
    FROM carried_out JOIN cuts USING (trajectory_id) WHERE last > 0
    GROUP BY trajectory_id ORDER BY trajectory_id
"""


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
    own = (curated.map(rows_of, groups) for rows_of in (_plan_rows, _continuation_rows))
    parts = chain(*own, [PLANNER_SFT.to_arrow(documents)])
    return joined_rows(PLANNER_SFT, parts), quarantined


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


def plan_rows(prompts: pa.Table, plans: pa.Table, settings: PlannerSettings) -> pa.Table:
    """The rows of some plans that are not in the lake."""
    connection = text_session()
    connection.register(PROMPTS.name, prompts)
    connection.register(PLANS.name, plans)
    return as_rows(PLANNER_SFT, query_batches(connection, _plans_sql(settings)))


def _plan_rows(lake: Lake, settings: CurationSettings, shards: list[str]) -> pa.Table:
    """Request to plan."""
    connection = shard_session(lake, settings, shards, _PLANNED)
    return as_rows(PLANNER_SFT, query_batches(connection, _plans_sql(settings.planner)))


def _continuation_rows(lake: Lake, settings: CurationSettings, shards: list[str]) -> pa.Table:
    """A plan cut at a random step: the steps before, with their images, to the steps after."""
    connection = shard_session(lake, settings, shards, _CONTINUED)
    template = settings.planner.interleaved_prompt
    sql = _ROWS.format(
        source="continuation",
        planned=_CONTINUATIONS_SQL.format(seed=settings.planner.seed),
        question=planner_question_sql(template, _CUTS),
        version=literal(version_of(template)),
    )
    return as_rows(PLANNER_SFT, query_batches(connection, sql))


def _plans_sql(settings: PlannerSettings) -> str:
    """Input images make it an interleaved request, as in `_question`."""
    names = settings.text_prompt, settings.interleaved_prompt
    question = "CASE len(images) WHEN 0 THEN {} ELSE {} END"
    return _ROWS.format(
        source="plan",
        planned=_PLANS_SQL,
        question=question.format(*(planner_question_sql(name, [0]) for name in names)),
        version=question.format(*(literal(version_of(name)) for name in names)),
    )
