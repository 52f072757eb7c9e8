"""Whole stories as interleaved sequences, for training unified models.

The assistant's turn is the plan's reasoning in `<gthink>`, then for every step

    <plan>prompt</plan><image><img_token></image><info>text beside it</info>

and in the reflection form a `<critic>` with reasoning and verdict after every attempt's picture.
Every tag is closed, `<info>` is left out where a step has no text, and text-only steps have
nothing else. One `<image>` stands for one picture.
"""

from functools import partial

import duckdb
import pyarrow as pa

from inference.agent_prompts import escape_tags, insert_image_tags
from inference.agent_prompts.formatting import verdict_json
from inference.roles import Verdict
from schemas.curation import SEQUENCES
from warehouse import Home

from ..core.duckdb_session import (
    add_text_function,
    arrow,
    duckdb_session,
    shard_groups,
    shard_in,
    stream,
)
from .reports import SequencesReport
from .settings import CurationSettings, SequenceSettings

_PICTURE = "<image><img_token></image>"
# What is shown of an attempt, and which attempts are shown: none after the chosen one.
_FORMS = {
    "easy": (f"'{_PICTURE}'", "chosen"),
    "reflection": (
        f"'{_PICTURE}' || critic_tag(accepted, refined_prompt, reasoning)",
        "iteration <= final",
    ),
}


def build_sequences(
    home: Home, settings: CurationSettings
) -> tuple[pa.RecordBatchReader, SequencesReport]:
    """Rows of `sequences`, computed while they are read, and how many there are."""
    connection = duckdb_session(home)
    left_out = _tell(connection, settings.sequences)
    add_text_function(connection, "escape_tags", escape_tags, "VARCHAR")
    add_text_function(connection, "insert_image_tags", insert_image_tags, "VARCHAR", "BIGINT")
    add_text_function(connection, "critic_tag", _critic_tag, "BOOLEAN", "VARCHAR", "VARCHAR")
    told = int(connection.execute("SELECT count(*) FROM told").fetchall()[0][0])
    forms = settings.sequences.forms
    report = SequencesReport(dict.fromkeys(forms, told), left_out)
    groups = shard_groups(connection, "told", rows=8_000)
    return stream(SEQUENCES, connection, groups, partial(_rows, forms=forms)), report


def _critic_tag(accepted: bool, refined: str, reasoning: str) -> str:
    verdict = verdict_json(Verdict(accepted, refined, reasoning), "success")
    return f"<critic><think>{escape_tags(reasoning).strip(' ')}</think>{verdict}</critic>"


def _tell(connection: duckdb.DuckDBPyConnection, settings: SequenceSettings) -> dict[str, int]:
    """Trajectories of train prompts whose every drawn step has its picture, into `told`."""
    statuses = "('complete', 'exhausted')" if settings.exhausted else "('complete')"
    connection.execute(
        f"""
        CREATE TEMP TABLE weighed AS
        WITH planned AS (
            SELECT plan_id, count(*) FILTER (prompt IS NOT NULL) AS drawn FROM plans GROUP BY 1
        ),
        pictured AS (
            SELECT trajectory_id, count(*) AS pictures FROM attempts WHERE chosen GROUP BY 1
        )
        SELECT trajectory_id, trajectories.shard,
               CASE WHEN split <> 'train' THEN 'heldout'
                    WHEN status NOT IN {statuses} THEN status
                    WHEN drawn IS NULL OR drawn <> coalesce(pictures, 0) THEN 'missing_picture'
                    WHEN drawn = 0 THEN 'text_only' END AS reason
        FROM trajectories JOIN prompts USING (prompt_id)
        LEFT JOIN planned USING (plan_id) LEFT JOIN pictured USING (trajectory_id)
        """
    )
    connection.execute("CREATE TEMP TABLE told AS SELECT * FROM weighed WHERE reason IS NULL")
    sql = "SELECT reason, count(*) FROM weighed WHERE reason IS NOT NULL GROUP BY 1 ORDER BY 1"
    return dict(connection.execute(sql).fetchall())


def _rows(
    connection: duckdb.DuckDBPyConnection, shards: list[str], forms: tuple[str, ...]
) -> pa.Table:
    tables = [arrow(connection, _sequences(shards, form, *_FORMS[form])) for form in forms]
    return pa.concat_tables(tables)


def _sequences(shards: list[str], form: str, shown: str, which: str) -> str:
    """SQL for the rows of some shards: attempts into steps, steps into stories."""
    return f"""
        WITH tries AS (
            SELECT *, max(iteration) FILTER (chosen)
                      OVER (PARTITION BY trajectory_id, step_number) AS final
            FROM attempts SEMI JOIN told USING (trajectory_id) WHERE {shard_in(shards)}
        ),
        pictures AS (
            SELECT trajectory_id, step_number, string_agg({shown}, '' ORDER BY iteration) AS shown,
                   list(image ORDER BY iteration) AS images
            FROM tries WHERE {which}
            GROUP BY trajectory_id, step_number
        ),
        stepped AS (
            SELECT trajectory_id, t.prompt_id, step_number, p.reasoning,
                   coalesce(images, []) AS images,
                   coalesce('<plan>' || escape_tags(p.prompt) || '</plan>' || shown, '')
                   || coalesce('<info>' || escape_tags(auxiliary_text) || '</info>', '') AS text
            FROM trajectories t SEMI JOIN told USING (trajectory_id) JOIN plans p USING (plan_id)
            LEFT JOIN pictures USING (trajectory_id, step_number)
            WHERE {shard_in(shards, "t.shard")} AND {shard_in(shards, "p.shard")}
        ),
        stories AS (
            SELECT trajectory_id, any_value(prompt_id) AS prompt_id,
                   '<gthink>' || escape_tags(any_value(reasoning)) || '</gthink>'
                   || string_agg(text, '' ORDER BY step_number) AS story,
                   flatten(list(images ORDER BY step_number)) AS images
            FROM stepped GROUP BY trajectory_id
        )
        SELECT trajectory_id || '/{form}' AS row_id, prompt_id, trajectory_id, '{form}' AS form,
               [{{'role': 'user', 'content': insert_image_tags(prompts.text, len(input_images))}},
                {{'role': 'assistant', 'content': story}}] AS messages,
               list_concat(input_images, images) AS images
        FROM stories JOIN prompts USING (prompt_id)
        ORDER BY row_id
    """
