"""The critic's SFT and RL sets: a row per attempt up to the best one of a retained step.

A row has the image before, the image after, the goal, and the prompt that made the image: empty at
iteration 0, where that is the plan's own prompt (as in the reference's rows). SFT learns the
teacher's verdict and its next prompt; RL gets only the state and the true verdict.

The teacher makes mistakes that the scores reveal: a verdict is contradicted if an accepted image
scores low or a rejected one high. SFT drops such rows, because their reasoning is wrong too; RL,
which learns no reasoning from them, uses the verdict of the scores.

With `reviews.use`, the verdict and the next prompt of people take the place of the critic's, and
nothing contradicts them. Where they differ from the critic, its reasoning is left out.
"""

from collections.abc import Mapping

import duckdb
import pyarrow as pa

from inference.agent_prompts.formatting import critic_answer
from inference.agent_prompts.templates import critic_prompt, version_of
from inference.roles import Verdict
from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT
from warehouse import EncodedImage, Home

from .duckdb_session import (
    add_text_function,
    count_reasons,
    curation_session,
    shard_groups,
    shard_in,
    stream_groups,
)
from .settings import BalanceSettings, CurationSettings, VerdictSettings

# Rows, computed while they are read; dropped attempts by reason; verdicts (see `balance`).
CriticSet = tuple[pa.RecordBatchReader, dict[str, int], list[dict[str, int]]]
_KEY = "trajectory_id, step_number, iteration"
_FALLBACK_CANVAS = (192, 192)
_CONTRADICTED = {"contradicted_verdict": "contradicted"}
# SQL for the columns of a set that the other does not have.
_SFT_COLUMNS = """
    [{'role': 'user', 'content': question(goal, rewritten)},
     {'role': 'assistant', 'content': answer(
         accepted, coalesce(person_prompt, refined_prompt),
         CASE WHEN accepted = critic_accepted THEN reasoning ELSE '' END)}] AS messages,
    [before, image] AS images
"""
_RL_COLUMNS = """
    goal AS origin_prompt, rewritten AS rewritten_prompt, before AS origin_image,
    image AS edited_image,
    {'success': accepted, 'semantics': semantics, 'quality': quality} AS evaluation,
    [{'role': 'user', 'content': question(goal, rewritten)}] AS messages
"""
_DECIDED_BY = """
    CASE WHEN person_accepted IS NOT NULL OR NOT accepted AND person_prompt IS NOT NULL
         THEN 'person' END AS decided_by
"""
_VERDICTS = """
    SELECT iteration, count(*) FILTER (NOT after AND accepted) AS accepted_before,
           count(*) FILTER (NOT after AND NOT accepted) AS rejected_before,
           count(*) FILTER (after AND accepted) AS accepted_after,
           count(*) FILTER (after AND NOT accepted) AS rejected_after
    FROM (SELECT iteration, accepted, false AS after FROM {source}
          UNION ALL SELECT iteration, accepted, true FROM {target})
    GROUP BY iteration ORDER BY iteration
"""


def build_critic_sft(home: Home, settings: CurationSettings) -> CriticSet:
    """The set `critic_sft`."""
    verdicts = settings.critic.verdicts
    reasons = _CONTRADICTED if verdicts.sft == "drop" else {}
    reasons = reasons | {"no_rewrite": "NOT accepted AND NOT has_rewrite"}
    if not verdicts.unproven_rewrites:
        reasons["unproven_rewrite"] = "NOT accepted AND is_best"
    return _build(home, settings, CRITIC_SFT, _SFT_COLUMNS, "accepted", reasons)


def build_critic_rl(home: Home, settings: CurationSettings) -> CriticSet:
    """The set `critic_rl`."""
    source = settings.critic.verdicts.rl
    verdict = "accepted <> contradicted" if source == "scores" else "accepted"
    reasons = _CONTRADICTED if source == "drop" else {}
    return _build(home, settings, CRITIC_RL, _RL_COLUMNS, verdict, reasons)


def balance(
    connection: duckdb.DuckDBPyConnection, source: str, target: str, settings: BalanceSettings
) -> list[dict[str, int]]:
    """Resample table `source` (key columns, `accepted`, `shard`) into `target` with `copy_number`.

    Every iteration gets as many True as False (paper, section 3.2); else a critic learns to accept
    late attempts of a chain. Row copies are numbered from 0, and copy n + 1 of a row exists only if
    every row of its iteration and verdict has copy n. The rows to repeat or leave out are chosen by
    a hash of seed and row, so the result depends neither on threads nor on row order.
    Returns verdicts per iteration before and after, the columns of `_VERDICTS`.
    """
    copies = settings.max_copies if settings.mode == "up" else 1
    wanted = f"least(greatest(yes, no), least(yes, no) * {copies})"
    if settings.one_sided == "keep":
        wanted = f"CASE WHEN least(yes, no) = 0 THEN greatest(yes, no) ELSE {wanted} END"
    connection.execute(
        f"""
        CREATE TEMP TABLE {target} AS
        WITH verdicts AS (
            SELECT iteration, count(*) FILTER (accepted) AS yes,
                   count(*) FILTER (NOT accepted) AS no
            FROM {source} GROUP BY iteration
        ),
        ranked AS (
            SELECT {source}.*, copy_number, row_number() OVER (
                PARTITION BY iteration, accepted
                ORDER BY copy_number, md5(concat_ws('/', {settings.seed}, {_KEY})), {_KEY}
            ) AS rank
            FROM {source}, (SELECT unnest(range({copies})) AS copy_number)
        )
        SELECT ranked.* EXCLUDE (rank) FROM ranked JOIN verdicts USING (iteration)
        WHERE {"true" if settings.mode == "none" else f"rank <= {wanted}"}
        """
    )
    verdicts = connection.sql(_VERDICTS.format(source=source, target=target))
    return verdicts.to_arrow_table().to_pylist()


def _create_candidates(
    connection: duckdb.DuckDBPyConnection,
    split: str,
    verdict: str,
    reasons: Mapping[str, str],
    settings: VerdictSettings,
) -> None:
    """Table `judged`: attempts up to the best of the split's steps; `candidates`: those to use."""
    cases = "".join(f" WHEN {condition} THEN '{name}'" for name, condition in reasons.items())
    reason = f"CASE{cases} END" if cases else "CAST(NULL AS VARCHAR)"
    connection.execute(
        f"""
        CREATE TEMP TABLE judged AS
        WITH attempted AS (
            SELECT {_KEY}, attempts.prompt_id, attempts.shard,
                   coalesce(person_accepted, accepted) AS accepted, accepted AS critic_accepted,
                   person_accepted, person_prompt,
                   trim(coalesce(person_prompt, refined_prompt)) <> '' AS has_rewrite,
                   iteration = best_iteration AND person_prompt IS NULL AS is_best
            FROM attempts JOIN steps USING (trajectory_id, step_number)
            LEFT JOIN person_verdicts USING ({_KEY}) LEFT JOIN person_prompts USING ({_KEY})
            WHERE steps.split = '{split}' AND iteration <= best_iteration
        ),
        scored AS (
            SELECT attempted.*, semantics, quality,
                   person_accepted IS NULL AND
                   CASE WHEN accepted THEN overall < {settings.accept_at_least}
                        ELSE overall > {settings.reject_at_most} END AS contradicted
            FROM attempted JOIN scores USING ({_KEY})
        )
        SELECT * REPLACE ({verdict} AS accepted), {reason} AS reason FROM scored;

        CREATE TEMP TABLE candidates AS
        SELECT * EXCLUDE (reason, has_rewrite, is_best, contradicted)
        FROM judged WHERE reason IS NULL
        """
    )


def _build(
    home: Home,
    curation: CurationSettings,
    table: Table,
    columns: str,
    verdict: str,
    reasons: Mapping[str, str],
) -> CriticSet:
    """Balance the candidates into table `selection`, and stream its rows.

    Args:
        verdict: SQL over `accepted, contradicted, has_rewrite, is_best`.
        reasons: likewise, when an attempt is dropped; the first one counts.
    """
    settings, side = curation.critic, table.name.removeprefix("critic_")
    connection = curation_session(home, curation)
    _create_candidates(connection, side, verdict, reasons, settings.verdicts)
    verdicts = balance(connection, "candidates", "selection", getattr(settings, f"balance_{side}"))
    canvas = white_canvas(home, connection, settings.canvas_size)
    version = f"'{version_of(settings.agent_prompt)}' AS agent_prompt_version"
    columns = f"{columns}, {_DECIDED_BY}, {version}"

    def question(goal: str, rewritten: str) -> str:
        return critic_prompt(goal, rewritten, settings.agent_prompt).text

    def answer(accepted: bool, refined: str, reasoning: str) -> str:
        return critic_answer(Verdict(accepted, refined, reasoning))

    def rows_of(shards: list[str]) -> pa.Table:
        return connection.sql(_rows_sql(shards, columns, canvas)).to_arrow_table()

    add_text_function(connection, question)
    add_text_function(connection, answer)
    without = () if curation.uses_reviews else ("decided_by",)
    rows = stream_groups(table, shard_groups(connection, "selection"), rows_of, without)
    return rows, count_reasons(connection, "judged"), verdicts


def white_canvas(home: Home, connection: duckdb.DuckDBPyConnection, size: int | None) -> str:
    """Store the white image that precedes a trajectory's first image, and return its sha256.

    Without a `size` (pixels), it is as large as an image that was generated without a source.
    """
    shape = (size, size) if size else _FALLBACK_CANVAS
    if size is None:
        sql = "SELECT min(image) FROM attempts WHERE source_image IS NULL"
        ((first,),) = connection.execute(sql).fetchall()
        shape = home.images.get(first).image.size if first else shape
    return home.images.put(EncodedImage.white(shape))


def _rows_sql(shards: list[str], columns: str, canvas: str) -> str:
    return f"""
        WITH goals AS (
            SELECT trajectory_id, step_number, plans.prompt AS goal
            FROM trajectories JOIN plans USING (plan_id)
            WHERE {shard_in(shards, "trajectories.shard")} AND {shard_in(shards, "plans.shard")}
        ),
        texts AS (
            SELECT {_KEY}, goal, CASE WHEN iteration = 0 THEN '' ELSE prompt END AS rewritten,
                   refined_prompt, reasoning, coalesce(source_image, '{canvas}') AS before, image
            FROM attempts JOIN goals USING (trajectory_id, step_number)
            WHERE {shard_in(shards)}
        )
        SELECT concat_ws('/', {_KEY}, copy_number) AS row_id, prompt_id, {_KEY}, copy_number,
               accepted, {columns}
        FROM selection JOIN texts USING ({_KEY})
        WHERE {shard_in(shards)}
        ORDER BY shard, {_KEY}, copy_number
    """
