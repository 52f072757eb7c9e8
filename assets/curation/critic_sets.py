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

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT
from schemas.trajectories import ATTEMPT_KEY, ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from warehouse import EncodedImage, Home, Lake

from ..core.duckdb_session import count_reasons
from .sampling import class_sizes, row_hashes, select_copies, verdict_counts
from .settings import BalanceSettings, CurationSettings
from .shards import Columns, ShardedLake, Spool, as_rows, joined_rows, query_batches, shard_session
from .texts import add_critic_question

# Rows, computed while they are read; dropped attempts by reason; verdicts (see `verdict_counts`).
CriticSet = tuple[pa.RecordBatchReader, dict[str, int], list[dict[str, int]]]
_KEY = ", ".join(ATTEMPT_KEY)
_JUDGED: Columns = {
    ATTEMPTS: (
        *(*ATTEMPT_KEY, "prompt_id", "shard", "accepted", "refined_prompt"),
        *("source_image", "image"),
    ),
    SCORES: (*ATTEMPT_KEY, "overall", "semantics", "quality"),
}
_TEXTS: Columns = {
    ATTEMPTS: (*ATTEMPT_KEY, "prompt", "source_image", "image", "refined_prompt", "reasoning"),
    PLANS: ("plan_id", "step_number", "prompt"),
    TRAJECTORIES: ("trajectory_id", "plan_id"),
}
_CANDIDATES = pa.schema(
    [
        *(ATTEMPTS.arrow_schema.field(name) for name in (*ATTEMPT_KEY, "prompt_id", "shard")),
        *(
            pa.field(name, pa.bool_())
            for name in ("accepted", "critic_accepted", "person_accepted")
        ),
        ("person_prompt", pa.string()),
        *(SCORES.arrow_schema.field(name) for name in ("semantics", "quality")),
    ]
)
_FALLBACK_CANVAS = (192, 192)
_BY_SCORES = "accepted <> contradicted"
_CONTRADICTED = {"contradicted_verdict": "contradicted"}
# SQL for the columns of a set that the other does not have.
_SFT_COLUMNS = """
    [{'role': 'user', 'content': critic_question(goal, rewritten)},
     {'role': 'assistant', 'content': critic_answer(
         accepted, coalesce(person_prompt, refined_prompt),
         CASE WHEN accepted = critic_accepted THEN reasoning ELSE '' END)}] AS messages,
    [before, image] AS images
"""
_RL_COLUMNS = """
    goal AS origin_prompt, rewritten AS rewritten_prompt, before AS origin_image,
    image AS edited_image,
    {'success': accepted, 'semantics': semantics, 'quality': quality} AS evaluation,
    [{'role': 'user', 'content': critic_question(goal, rewritten)}] AS messages
"""
_DECIDED_BY = """
    CASE WHEN person_accepted IS NOT NULL OR NOT accepted AND person_prompt IS NOT NULL
         THEN 'person' END AS decided_by
"""


@dataclass(frozen=True)
class _Rules:
    """How a set is made of judged attempts.

    Args:
        columns: SQL for the columns that the other set does not have.
        verdict: SQL over `accepted, contradicted, has_rewrite, is_best`.
        reasons: likewise, when an attempt is dropped; the first one counts.
    """

    table: Table
    columns: str
    balance: BalanceSettings
    verdict: str
    reasons: Mapping[str, str]


def build_critic_sft(
    home: Home, settings: CurationSettings, steps: pa.Table | None = None
) -> CriticSet:
    """The set `critic_sft`.

    Args:
        steps: rows of `steps` to use with their shards; None: the stored ones.
    """
    verdicts, verdict, reasons = settings.critic.verdicts, _BY_SCORES, dict[str, str]()
    if verdicts.sft != "scores":
        verdict, reasons = "accepted", dict(_CONTRADICTED) if verdicts.sft == "drop" else {}
        reasons["no_rewrite"] = "NOT accepted AND NOT has_rewrite"
        if not verdicts.unproven_rewrites:
            reasons["unproven_rewrite"] = "NOT accepted AND is_best"
    rules = _Rules(CRITIC_SFT, _SFT_COLUMNS, settings.critic.balance_sft, verdict, reasons)
    return _build(home, settings, rules, steps)


def build_critic_rl(
    home: Home, settings: CurationSettings, steps: pa.Table | None = None
) -> CriticSet:
    """The set `critic_rl`; `steps` as for `build_critic_sft`."""
    source = settings.critic.verdicts.rl
    verdict = _BY_SCORES if source == "scores" else "accepted"
    reasons = _CONTRADICTED if source == "drop" else {}
    rules = _Rules(CRITIC_RL, _RL_COLUMNS, settings.critic.balance_rl, verdict, reasons)
    return _build(home, settings, rules, steps)


def build_wrong_verdicts(home: Home, settings: CurationSettings, steps: pa.Table) -> CriticSet:
    """All attempts of some steps of RL whose verdict the scores contradict, with that of the
    scores, as rows of `critic_rl`; they are not balanced."""
    reasons = {"agrees_with_scores": "NOT contradicted"}
    unbalanced = BalanceSettings(mode="none")
    rules = _Rules(CRITIC_RL, _RL_COLUMNS, unbalanced, _BY_SCORES, reasons)
    return _build(home, settings, rules, steps)


def _build(
    home: Home, settings: CurationSettings, rules: _Rules, chosen: pa.Table | None
) -> CriticSet:
    """Find all candidates, balance them, and stream the rows."""
    curated = ShardedLake.of(home, settings, steps=chosen)
    groups, side = curated.groups(), rules.table.name.removeprefix("critic_")
    candidates, measures = Spool(_CANDIDATES), list[_Measures]()
    steps = curated.steps_of(groups, side)
    for found, measured in curated.map(_find_candidates, groups, rules, beside=steps):
        candidates.add(found)
        measures.append(measured)
    sizes = class_sizes((each.hashes for each in measures), rules.balance)
    canvas = store_canvas(home, settings, (each.first_image for each in measures))
    parts = curated.map(_rows, groups, rules, sizes, canvas, beside=candidates.read())
    dropped = sum((each.dropped for each in measures), Counter())
    return joined_rows(rules.table, parts), dict(sorted(dropped.items())), verdict_counts(sizes)


@dataclass(frozen=True)
class _Measures:
    """What balance and canvas follow from, of some shards."""

    dropped: Counter[str]
    hashes: pa.Table
    first_image: str | None


def _find_candidates(
    lake: Lake, settings: CurationSettings, rules: _Rules, shards: list[str], steps: pa.Table
) -> tuple[pa.RecordBatch, _Measures]:
    connection = shard_session(lake, settings, shards, _JUDGED, opinions=True)
    _create_candidates(connection, steps, rules, settings)
    dropped = Counter(count_reasons(connection, "judged"))
    hashes = row_hashes(connection, "candidates", rules.balance)
    found = connection.table("candidates").to_arrow_table().cast(_CANDIDATES).combine_chunks()
    (batch,) = found.to_batches() or [pa.RecordBatch.from_pylist([], _CANDIDATES)]
    return batch, _Measures(dropped, hashes, first_generated_image(connection))


def _rows(
    lake: Lake,
    settings: CurationSettings,
    rules: _Rules,
    sizes: pa.Table,
    canvas: str,
    shards: list[str],
    candidates: pa.RecordBatch,
) -> pa.Table:
    connection = shard_session(lake, settings, shards, _TEXTS)
    connection.register("candidates", pa.Table.from_batches([candidates]))
    select_copies(connection, "candidates", "selection", sizes, rules.balance)
    version = add_critic_question(connection, settings.critic.agent_prompt)
    sql = _rows_sql(f"{rules.columns}, {_DECIDED_BY}, {version}", canvas)
    return as_rows(rules.table, query_batches(connection, sql))


def _create_candidates(
    connection: duckdb.DuckDBPyConnection,
    steps: pa.Table,
    rules: _Rules,
    settings: CurationSettings,
) -> None:
    """Table `judged`: attempts up to the best of the steps; `candidates`: those to use."""
    connection.register("steps", steps)
    verdicts, verdict = settings.critic.verdicts, rules.verdict
    cases = "".join(f" WHEN {condition} THEN '{name}'" for name, condition in rules.reasons.items())
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
            WHERE iteration <= best_iteration
        ),
        scored AS (
            SELECT attempted.*, semantics, quality,
                   person_accepted IS NULL AND
                   CASE WHEN accepted THEN overall < {verdicts.accept_at_least}
                        ELSE overall > {verdicts.reject_at_most} END AS contradicted
            FROM attempted JOIN scores USING ({_KEY})
        )
        SELECT * REPLACE ({verdict} AS accepted), {reason} AS reason FROM scored;

        CREATE TEMP TABLE candidates AS
        SELECT * EXCLUDE (reason, has_rewrite, is_best, contradicted)
        FROM judged WHERE reason IS NULL
        """
    )


def store_canvas(home: Home, settings: CurationSettings, first_images: Iterable[str | None]) -> str:
    """Store the white image that precedes a trajectory's first image, and return its sha256.

    Without `canvas_size`, it is as large as an image that was generated without a source.
    """
    size = settings.critic.canvas_size
    shape = (size, size) if size else _FALLBACK_CANVAS
    if size is None:
        first = min((image for image in first_images if image), default=None)
        shape = home.images.get(first).image.size if first else shape
    return home.images.put(EncodedImage.white(shape))


def first_generated_image(connection: duckdb.DuckDBPyConnection) -> str | None:
    """An image that was generated without a source, if there is one: the same one every time."""
    sql = "SELECT min(image) FROM attempts WHERE source_image IS NULL"
    return connection.sql(sql).fetchall()[0][0]


def _rows_sql(columns: str, canvas: str) -> str:
    return f"""
        WITH goals AS (
            SELECT trajectory_id, step_number, plans.prompt AS goal
            FROM trajectories JOIN plans USING (plan_id)
        ),
        texts AS (
            SELECT {_KEY}, goal, CASE WHEN iteration = 0 THEN '' ELSE prompt END AS rewritten,
                   refined_prompt, reasoning, coalesce(source_image, '{canvas}') AS before, image
            FROM attempts JOIN goals USING (trajectory_id, step_number)
        )
        -- Sorted before the texts are made, so that sorting moves no long ones.
        SELECT concat_ws('/', {_KEY}, copy_number) AS row_id, prompt_id, {_KEY}, copy_number,
               accepted, {columns}
        FROM (FROM selection JOIN texts USING ({_KEY}) ORDER BY shard, {_KEY}, copy_number)
    """
