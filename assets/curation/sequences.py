"""Complete trajectories as interleaved sequences, for training unified models.

The assistant's turn is the plan's reasoning in `<gthink>`, then for every step

    <plan>prompt</plan><image><img_token></image><info>text beside it</info>

and in the reflection form a `<critic>` with reasoning and verdict after every attempt's image.
Every tag is closed; `<info>` is left out if a step has no text; text-only steps have nothing else.
One `<image>` stands for one image.

With `form: reference` a text is what the reference's two scripts write, byte for byte: every tag
and text has a line of its own, an image is followed by a full stop, and `<plan>` stands where one
expects `</plan>`. Only tags inside a prompt or an answer are escaped, also there.
"""

from collections import Counter
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from schemas.curation import SEQUENCES
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, TRAJECTORIES
from warehouse import Home, Lake

from ..core.duckdb_session import count_reasons
from .settings import CurationSettings, SequenceSettings
from .shards import (
    Columns,
    ShardedLake,
    as_rows,
    group_shards,
    joined_rows,
    query_batches,
    shard_session,
)

_GROUP_ROWS = 8_000  # of selected trajectories; rows are in order of form and id within a group
_PART_ROWS = 2_000  # of them, whose texts are in memory at a time
_CANDIDATES: Columns = {
    PROMPTS: ("prompt_id", "split"),
    PLANS: ("plan_id", "step_number", "prompt"),
    TRAJECTORIES: ("trajectory_id", "prompt_id", "plan_id", "shard", "status"),
    ATTEMPTS: ("trajectory_id", "chosen", "accepted"),
}
_WITH_TEXTS: Columns = {
    PROMPTS: (*_CANDIDATES[PROMPTS], "text", "input_images"),
    PLANS: (*_CANDIDATES[PLANS], "reasoning", "auxiliary_text"),
    TRAJECTORIES: _CANDIDATES[TRAJECTORIES],
    ATTEMPTS: (
        *_CANDIDATES[ATTEMPTS],
        *("step_number", "iteration", "image", "refined_prompt", "reasoning"),
    ),
}

_IMAGE = "<image><img_token></image>"
# SQL: which attempts are written (none after the chosen one).
_ATTEMPTS_OF = {"easy": "chosen", "reflection": "iteration <= final"}


@dataclass(frozen=True)
class _Markup:
    """How sequences are written; `line_end` follows every tag and every text."""

    image: str
    plan_end: str
    line_end: str

    def tag(self, name: str, text: str, escape: bool = True) -> str:
        """SQL of a tag around a text, which is SQL as well."""
        content = f"escape_tags({text})" if escape else text
        end = self.plan_end if name == "plan" else f"</{name}>"
        return (
            f"""'<{name}>{self.line_end}' || {content} || '{self.line_end}{end}{self.line_end}'"""
        )

    def attempt(self, form: str) -> str:
        """SQL of an attempt's image, and in the reflection form the critic's answer."""
        image = f"'{self.image}{self.line_end}'"
        if form == "easy":
            return image
        answer = (
            f"{self.tag('think', 'reasoning')} || verdict_json('success', accepted, refined_prompt)"
        )
        return f"{image} || {self.tag('critic', answer, escape=False)}"


_MARKUPS = {
    "ours": _Markup(_IMAGE, "</plan>", ""),
    "reference": _Markup(f"{_IMAGE}.", "<plan>", "\n"),
}


def build_sequences(
    home: Home, settings: CurationSettings
) -> tuple[pa.RecordBatchReader, dict[str, int]]:
    """Rows (computed while they are read), and dropped trajectories by reason."""
    curated = ShardedLake.of(home, settings)
    measured = [*curated.map(_measure, curated.groups())]
    selected = {shard: count for counts, _ in measured for shard, count in counts.items()}
    dropped = sum((reasons for _, reasons in measured), Counter())
    groups = group_shards(selected, _GROUP_ROWS)
    rows = joined_rows(SEQUENCES, curated.map(_rows, groups))
    return rows, dict(sorted(dropped.items()))


def _measure(
    lake: Lake, settings: CurationSettings, shards: list[str]
) -> tuple[dict[str, int], Counter[str]]:
    """Selected trajectories by shard, in order of the shards, and dropped ones by reason."""
    connection = shard_session(lake, settings, shards, _CANDIDATES)
    _create_candidates(connection, settings.sequences)
    selected = "SELECT shard, count(*) FROM selection GROUP BY shard ORDER BY shard"
    counts = dict(connection.execute(selected).fetchall())
    return counts, Counter(count_reasons(connection, "candidates"))


def _rows(lake: Lake, settings: CurationSettings, shards: list[str]) -> pa.Table:
    connection = shard_session(lake, settings, shards, _WITH_TEXTS)
    _create_candidates(connection, settings.sequences)
    markup = _MARKUPS[settings.sequences.form]
    parts = [
        as_rows(SEQUENCES, query_batches(connection, _sequences_sql(form, markup, part)))
        for form in settings.sequences.forms
        for part in range(_part_count(connection))
    ]
    return pa.concat_tables([SEQUENCES.arrow_schema.empty_table(), *parts])


def _part_count(connection: duckdb.DuckDBPyConnection) -> int:
    sql = "SELECT coalesce(max(part) + 1, 0) FROM selection"
    return int(connection.sql(sql).fetchall()[0][0])


def _create_candidates(connection: duckdb.DuckDBPyConnection, settings: SequenceSettings) -> None:
    """Table `candidates`: trajectories with the reason why they are dropped; `selection`: others,
    in numbered parts, which are in order of `row_id`.

    Selected trajectories are of train prompts and have an image for every step with a prompt; in
    the reference's form as many accepted images as their plan has steps.
    """
    statuses = "('complete', 'exhausted')" if settings.exhausted else "('complete')"
    accepted_only = settings.form == "reference"
    connection.execute(
        f"""
        CREATE TEMP TABLE candidates AS
        WITH planned AS (
            SELECT plan_id, count(*) AS steps, count(*) FILTER (prompt IS NOT NULL) AS image_steps
            FROM plans GROUP BY 1
        ),
        generated AS (
            SELECT trajectory_id, count(*) FILTER (chosen) AS images,
                   count(*) FILTER (accepted) AS accepted
            FROM attempts GROUP BY 1
        )
        SELECT trajectory_id, trajectories.shard,
               CASE WHEN split <> 'train' THEN 'heldout'
                    WHEN status NOT IN {statuses} THEN status
                    WHEN image_steps IS NULL OR image_steps <> coalesce(images, 0)
                    THEN 'missing_picture'
                    WHEN image_steps = 0 THEN 'text_only'
                    WHEN {accepted_only} AND steps <> accepted THEN 'not_all_accepted'
               END AS reason
        FROM trajectories JOIN prompts USING (prompt_id)
        LEFT JOIN planned USING (plan_id) LEFT JOIN generated USING (trajectory_id);

        CREATE TEMP TABLE selection AS
        SELECT *, (row_number() OVER (ORDER BY trajectory_id || '/') - 1) // {_PART_ROWS} AS part
        FROM candidates WHERE reason IS NULL
        """
    )


def _sequences_sql(form: str, markup: _Markup, part: int) -> str:
    return f"""
        WITH selected AS (SELECT trajectory_id FROM selection WHERE part = {part}),
        selected_attempts AS (
            SELECT *, max(iteration) FILTER (chosen)
                      OVER (PARTITION BY trajectory_id, step_number) AS final
            FROM attempts SEMI JOIN selected USING (trajectory_id)
        ),
        step_images AS (
            SELECT trajectory_id, step_number,
                   string_agg({markup.attempt(form)}, '' ORDER BY iteration) AS attempts_text,
                   list(image ORDER BY iteration) AS images
            FROM selected_attempts WHERE {_ATTEMPTS_OF[form]}
            GROUP BY trajectory_id, step_number
        ),
        step_texts AS (
            SELECT trajectory_id, t.prompt_id, step_number, p.reasoning,
                   coalesce(images, []) AS images,
                   coalesce({markup.tag("plan", "p.prompt")} || attempts_text, '')
                   || coalesce({markup.tag("info", "auxiliary_text")}, '') AS text
            FROM trajectories t SEMI JOIN selected USING (trajectory_id)
            JOIN plans p USING (plan_id)
            LEFT JOIN step_images USING (trajectory_id, step_number)
        ),
        sequence_texts AS (
            SELECT trajectory_id, any_value(prompt_id) AS prompt_id,
                   {markup.tag("gthink", "any_value(reasoning)")}
                   || string_agg(text, '' ORDER BY step_number) AS sequence,
                   flatten(list(images ORDER BY step_number)) AS images
            FROM step_texts GROUP BY trajectory_id
        )
        SELECT trajectory_id || '/{form}' AS row_id, prompt_id, trajectory_id, '{form}' AS form,
               [{{'role': 'user', 'content': insert_image_tags(prompts.text, len(input_images))}},
                {{'role': 'assistant', 'content': sequence}}] AS messages,
               list_concat(input_images, images) AS images
        FROM sequence_texts JOIN prompts USING (prompt_id)
        ORDER BY row_id
    """
