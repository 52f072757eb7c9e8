"""The critic's SFT and RL sets: a row per attempt up to the best one of a retained step.

A row has the image before, the image after, the goal, and the prompt that made the image: empty at
iteration 0, where that is the plan's own prompt (as in the reference's rows). SFT learns the
teacher's verdict and its next prompt; RL gets only the state and the true verdict.

The teacher makes mistakes that the scores reveal: a verdict is contradicted if an accepted image
scores low or a rejected one high. SFT drops such rows, because their reasoning is wrong too; RL,
which learns no reasoning from them, uses the verdict of the scores.
"""

from dataclasses import dataclass
from functools import partial

import duckdb
import pyarrow as pa

from inference.agent_prompts import critic_answer, critic_prompt
from inference.agent_prompts.templates import version_of
from inference.roles import Verdict
from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT
from warehouse import EncodedImage, Home

from .balance import KEY, IterationBalance, balance
from .duckdb_session import (
    add_text_function,
    count_reasons,
    count_rows,
    duckdb_session,
    query_table,
    shard_groups,
    shard_in,
    stream_groups,
)
from .settings import BalanceSettings, CriticSettings, CurationSettings, VerdictSettings

_FALLBACK_CANVAS = (192, 192)


@dataclass(frozen=True)
class CriticReport:
    """A critic set: its rows, attempts dropped by reason, and verdicts by iteration."""

    rows: int
    dropped: dict[str, int]
    balance: list[IterationBalance]
    agent_prompt_version: str


def build_critic_sft(
    home: Home, settings: CurationSettings
) -> tuple[pa.RecordBatchReader, CriticReport]:
    """Rows of `critic_sft`, computed while they are read, and a report."""
    columns = """
        [{'role': 'user', 'content': critic_prompt(goal, rewritten)},
         {'role': 'assistant',
          'content': critic_answer(accepted, refined_prompt, reasoning)}] AS messages,
        [before, image] AS images
    """
    critic = settings.critic
    connection = duckdb_session(home)
    _create_candidates(
        connection, "sft", "accepted", _sft_drop_reason(critic.verdicts), critic.verdicts
    )
    return _build(home, connection, CRITIC_SFT, columns, critic, critic.balance_sft)


def build_critic_rl(
    home: Home, settings: CurationSettings
) -> tuple[pa.RecordBatchReader, CriticReport]:
    """Rows of `critic_rl`, computed while they are read, and a report."""
    columns = """
        goal AS origin_prompt, rewritten AS rewritten_prompt, before AS origin_image,
        image AS edited_image,
        {'success': accepted, 'semantics': semantics, 'quality': quality} AS evaluation,
        [{'role': 'user', 'content': critic_prompt(goal, rewritten)}] AS messages
    """
    critic = settings.critic
    connection = duckdb_session(home)
    verdict = "accepted <> contradicted" if critic.verdicts.rl == "scores" else "accepted"
    _create_candidates(connection, "rl", verdict, _rl_drop_reason(critic.verdicts), critic.verdicts)
    return _build(home, connection, CRITIC_RL, columns, critic, critic.balance_rl)


def white_canvas(home: Home, size: int | None = None) -> str:
    """Store the white image that precedes a trajectory's first image, and return its sha256.

    Args:
        size: pixels on a side; None: as large as one of the images generated without a source.
    """
    shape = (size, size) if size else _first_image_size(home)
    return home.images.put(EncodedImage.white(shape))


def _first_image_size(home: Home) -> tuple[int, int]:
    sql = "SELECT min(image) FROM attempts WHERE source_image IS NULL"
    ((image,),) = duckdb_session(home).execute(sql).fetchall()
    return home.images.get(image).image.size if image else _FALLBACK_CANVAS


def _create_candidates(
    connection: duckdb.DuckDBPyConnection,
    split: str,
    verdict: str,
    drop_reason: str,
    settings: VerdictSettings,
) -> None:
    """Table `judged`: attempts up to the best of the split's steps; `candidates`: those to use.

    Args:
        verdict, drop_reason: SQL over `accepted, contradicted, has_rewrite, is_best`.
    """
    connection.execute(
        f"""
        CREATE TEMP TABLE judged AS
        WITH attempted AS (
            SELECT {KEY}, attempts.prompt_id, attempts.shard, accepted,
                   trim(refined_prompt) <> '' AS has_rewrite, iteration = best_iteration AS is_best
            FROM attempts JOIN steps USING (trajectory_id, step_number)
            WHERE steps.split = '{split}' AND iteration <= best_iteration
        ),
        scored AS (
            SELECT attempted.*, semantics, quality,
                   CASE WHEN accepted THEN overall < {settings.accept_at_least}
                        ELSE overall > {settings.reject_at_most} END AS contradicted
            FROM attempted JOIN scores USING ({KEY})
        )
        SELECT * REPLACE ({verdict} AS accepted), {drop_reason} AS reason FROM scored
        """
    )
    connection.execute(
        """CREATE TEMP TABLE candidates AS
        SELECT * EXCLUDE (reason, has_rewrite, is_best, contradicted)
        FROM judged WHERE reason IS NULL"""
    )


def _sft_drop_reason(settings: VerdictSettings) -> str:
    cases = ["WHEN NOT accepted AND NOT has_rewrite THEN 'no_rewrite'"]
    if settings.sft == "drop":
        cases.insert(0, "WHEN contradicted THEN 'contradicted_verdict'")
    if not settings.unproven_rewrites:
        cases.append("WHEN NOT accepted AND is_best THEN 'unproven_rewrite'")
    return f"CASE {' '.join(cases)} END"


def _rl_drop_reason(settings: VerdictSettings) -> str:
    if settings.rl == "drop":
        return "CASE WHEN contradicted THEN 'contradicted_verdict' END"
    return "CAST(NULL AS VARCHAR)"


def _build(
    home: Home,
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    columns: str,
    settings: CriticSettings,
    balance_settings: BalanceSettings,
) -> tuple[pa.RecordBatchReader, CriticReport]:
    """Balance the candidates into table `selection`, and stream its rows."""
    balanced = balance(connection, "candidates", "selection", balance_settings)
    version = version_of(settings.agent_prompt)
    report = CriticReport(
        rows=count_rows(connection, "selection"),
        dropped=count_reasons(connection, "judged"),
        balance=balanced,
        agent_prompt_version=version,
    )
    _add_prompt_functions(connection, settings.agent_prompt)
    canvas = white_canvas(home, settings.canvas_size)
    columns = f"{columns}, '{version}' AS agent_prompt_version"
    groups = shard_groups(connection, "selection")
    rows = partial(_rows_of_shards, columns=columns, canvas=canvas)
    return stream_groups(table, connection, groups, rows), report


def _add_prompt_functions(connection: duckdb.DuckDBPyConnection, template: str) -> None:
    """Make `critic_prompt` and `critic_answer` of `inference.agent_prompts` callable from SQL."""

    def prompt(goal: str, rewritten: str) -> str:
        return critic_prompt(goal, rewritten, template).text

    def answer(accepted: bool, refined: str, reasoning: str) -> str:
        return critic_answer(Verdict(accepted, refined, reasoning))

    add_text_function(connection, "critic_prompt", prompt, "VARCHAR", "VARCHAR")
    add_text_function(connection, "critic_answer", answer, "BOOLEAN", "VARCHAR", "VARCHAR")


def _rows_of_shards(
    connection: duckdb.DuckDBPyConnection, shards: list[str], columns: str, canvas: str
) -> pa.Table:
    """The selected rows of some shards, with their texts and images."""
    return query_table(
        connection,
        f"""
        WITH goals AS (
            SELECT trajectory_id, step_number, plans.prompt AS goal
            FROM trajectories JOIN plans USING (plan_id)
            WHERE {shard_in(shards, "trajectories.shard")} AND {shard_in(shards, "plans.shard")}
        ),
        texts AS (
            SELECT {KEY}, goal, CASE WHEN iteration = 0 THEN '' ELSE prompt END AS rewritten,
                   refined_prompt, reasoning, coalesce(source_image, '{canvas}') AS before, image
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
