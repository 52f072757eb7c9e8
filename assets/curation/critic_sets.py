"""The critic's SFT and RL sets: one row per attempt up to the best one of a kept step.

A row shows the picture before, the picture after, the goal, and the wording that made the picture:
empty at iteration 0, where the plan's own prompt did (as the reference's rows have it). SFT learns
the teacher's verdict and its next proposal; RL only gets the state and the truth about it.

The teacher errs, and the scores know: a verdict is contradicted when an accepted picture scores
low or a rejected one high. SFT drops such rows, since their reasoning is wrong too; RL has no
reasoning to learn and takes the scores' side.
"""

from functools import partial

import duckdb
import pyarrow as pa

from inference.agent_prompts import critic_answer, critic_prompt
from inference.agent_prompts.templates import version_of
from inference.roles import Verdict
from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT
from warehouse import Home

from ..core.duckdb_session import (
    add_text_function,
    arrow,
    duckdb_session,
    shard_groups,
    shard_in,
    stream,
)
from .balance import KEY, balance
from .reports import CriticReport
from .settings import CriticSettings, CurationSettings, VerdictSettings
from .white_canvas import white_canvas

_REWRITTEN = "CASE WHEN iteration = 0 THEN '' ELSE prompt END"


def build_critic_sft(
    home: Home, settings: CurationSettings
) -> tuple[pa.RecordBatchReader, CriticReport]:
    """Rows of `critic_sft`, computed while they are read, and what they are."""
    critic = settings.critic
    version = version_of(critic.agent_prompt)
    columns = f"""
        [{{'role': 'user', 'content': critic_prompt(goal, rewritten)}},
         {{'role': 'assistant',
           'content': critic_answer(accepted, refined_prompt, reasoning)}}] AS messages,
        [before, image] AS images, '{version}' AS agent_prompt_version
    """
    connection = duckdb_session(home)
    _candidates(connection, "sft", "accepted", _sft_reason(critic.verdicts), critic.verdicts)
    balanced = balance(connection, "candidates", "selection", critic.balance_sft)
    report = CriticReport(_rows(connection), _left_out(connection), balanced, version)
    return _stream(home, connection, CRITIC_SFT, columns, critic), report


def build_critic_rl(
    home: Home, settings: CurationSettings
) -> tuple[pa.RecordBatchReader, CriticReport]:
    """Rows of `critic_rl`, computed while they are read, and what they are."""
    critic = settings.critic
    version = version_of(critic.agent_prompt)
    columns = f"""
        goal AS origin_prompt, rewritten AS rewritten_prompt, before AS origin_image,
        image AS edited_image,
        {{'success': accepted, 'semantics': semantics, 'quality': quality}} AS evaluation,
        [{{'role': 'user', 'content': critic_prompt(goal, rewritten)}}] AS messages,
        '{version}' AS agent_prompt_version
    """
    connection = duckdb_session(home)
    truth = _rl_truth(critic.verdicts)
    _candidates(connection, "rl", truth, _rl_reason(critic.verdicts), critic.verdicts)
    balanced = balance(connection, "candidates", "selection", critic.balance_rl)
    report = CriticReport(_rows(connection), _left_out(connection), balanced, version)
    return _stream(home, connection, CRITIC_RL, columns, critic), report


def _candidates(
    connection: duckdb.DuckDBPyConnection,
    split: str,
    truth: str,
    reason: str,
    settings: VerdictSettings,
) -> None:
    """Attempts up to the best of the split's steps; `rejects` are those left out for a reason."""
    connection.execute(
        f"""
        CREATE TEMP TABLE judged AS
        WITH attempted AS (
            SELECT {KEY}, attempts.prompt_id, attempts.shard, accepted,
                   trim(refined_prompt) <> '' AS has_rewrite, iteration = best_iteration AS is_best
            FROM attempts JOIN steps USING (trajectory_id, step_number)
            WHERE steps.split = '{split}' AND iteration <= best_iteration
        ),
        graded AS (
            SELECT attempted.*, semantics, quality,
                   CASE WHEN accepted THEN overall < {settings.accept_at_least}
                        ELSE overall > {settings.reject_at_most} END AS contradicted
            FROM attempted JOIN scores USING ({KEY})
        )
        SELECT * REPLACE ({truth} AS accepted), {reason} AS reason FROM graded
        """
    )
    connection.execute(
        """CREATE TEMP TABLE candidates AS
        SELECT * EXCLUDE (reason, has_rewrite, is_best, contradicted)
        FROM judged WHERE reason IS NULL"""
    )


def _sft_reason(settings: VerdictSettings) -> str:
    cases = ["WHEN NOT accepted AND NOT has_rewrite THEN 'no_rewrite'"]
    if settings.sft == "drop":
        cases.insert(0, "WHEN contradicted THEN 'contradicted_verdict'")
    if not settings.unproven_rewrites:
        cases.append("WHEN NOT accepted AND is_best THEN 'unproven_rewrite'")
    return f"CASE {' '.join(cases)} END"


def _rl_reason(settings: VerdictSettings) -> str:
    if settings.rl == "drop":
        return "CASE WHEN contradicted THEN 'contradicted_verdict' END"
    return "CAST(NULL AS VARCHAR)"


def _rl_truth(settings: VerdictSettings) -> str:
    return "accepted <> contradicted" if settings.rl == "scores" else "accepted"


def _rows(connection: duckdb.DuckDBPyConnection) -> int:
    return int(connection.execute("SELECT count(*) FROM selection").fetchall()[0][0])


def _left_out(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    sql = "SELECT reason, count(*) FROM judged WHERE reason IS NOT NULL GROUP BY 1 ORDER BY 1"
    return dict(connection.execute(sql).fetchall())


def _stream(
    home: Home,
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    columns: str,
    settings: CriticSettings,
) -> pa.RecordBatchReader:
    canvas = white_canvas(home, settings.canvas_size)
    _add_prompt_functions(connection, settings.agent_prompt)
    groups = shard_groups(connection, "selection")
    return stream(table, connection, groups, partial(_texts, columns=columns, canvas=canvas))


def _add_prompt_functions(connection: duckdb.DuckDBPyConnection, template: str) -> None:
    """SQL's `critic_prompt` and `critic_answer`, as `inference.agent_prompts` writes them."""

    def prompt(goal: str, rewritten: str) -> str:
        return critic_prompt(goal, rewritten, template).text

    def answer(accepted: bool, refined: str, reasoning: str) -> str:
        return critic_answer(Verdict(accepted, refined, reasoning))

    add_text_function(connection, "critic_prompt", prompt, "VARCHAR", "VARCHAR")
    add_text_function(connection, "critic_answer", answer, "BOOLEAN", "VARCHAR", "VARCHAR")


def _texts(
    connection: duckdb.DuckDBPyConnection, shards: list[str], columns: str, canvas: str
) -> pa.Table:
    """The selected rows of some shards, with their texts and pictures."""
    return arrow(
        connection,
        f"""
        WITH goals AS (
            SELECT trajectory_id, step_number, plans.prompt AS goal
            FROM trajectories JOIN plans USING (plan_id)
            WHERE {shard_in(shards, "trajectories.shard")} AND {shard_in(shards, "plans.shard")}
        ),
        texts AS (
            SELECT {KEY}, goal, {_REWRITTEN} AS rewritten, refined_prompt, reasoning,
                   coalesce(source_image, '{canvas}') AS before, image
            FROM attempts JOIN goals USING (trajectory_id, step_number)
            WHERE {shard_in(shards)}
        )
        SELECT concat_ws('/', {KEY}, copy_number) AS row_id, prompt_id, {KEY}, copy_number,
               accepted, {columns}
        FROM selection JOIN texts USING ({KEY})
        WHERE {shard_in(shards)}
        ORDER BY shard, {KEY}, copy_number
        """,
    )
