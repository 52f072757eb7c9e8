"""Pairs of critic answers for DPO: what people said of attempts of train prompts, and scores.

A verdict of people that is not the critic's makes a pair of the two answers; so does a person's
prompt beside the critic's. A preference between two attempts of a step is one between what a critic
could have answered after the earlier one: to accept it, or the prompt that the later one was made
with.

With `preferences.scores`, scores decide where people did not. A rejected attempt makes a pair of
accepting it and the critic's answer: its score says which is better. Two refinements of a step are
a pair where their images were drawn from the same one before and scored differently; it is the
attempt before the earlier one that both answer. No answer has reasoning: people give none, and that
of a refinement is about another image.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa

from schemas.curation import CRITIC_DPO
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPT_KEY, ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from warehouse import Home, Lake

from ..core.duckdb_session import count_reasons
from .critic_sets import first_generated_image, store_canvas
from .settings import CurationSettings
from .shards import Columns, ShardedLake, as_rows, joined_rows, query_batches, shard_session
from .texts import add_critic_question

_KEY = ", ".join(ATTEMPT_KEY)
_SOURCE_IMAGES: Columns = {ATTEMPTS: ("source_image", "image")}
_COLUMNS: Columns = {
    PROMPTS: ("prompt_id", "split"),
    PLANS: ("plan_id", "step_number", "prompt"),
    TRAJECTORIES: ("trajectory_id", "plan_id"),
    ATTEMPTS: (
        *(*ATTEMPT_KEY, "prompt_id", "shard", "prompt", "source_image", "image"),
        *("accepted", "refined_prompt"),
    ),
    SCORES: (*ATTEMPT_KEY, "overall"),
}
_PAIRS = f"""
    CREATE TEMP TABLE pairs AS
    WITH states AS (
        SELECT attempts.*, plans.prompt AS goal, person_accepted, person_prompt,
               CASE WHEN iteration = 0 THEN '' ELSE attempts.prompt END AS rewritten
        FROM attempts JOIN trajectories USING (trajectory_id)
        JOIN plans USING (plan_id, step_number)
        JOIN prompts ON prompts.prompt_id = attempts.prompt_id
        LEFT JOIN person_verdicts USING ({_KEY}) LEFT JOIN person_prompts USING ({_KEY})
        WHERE prompts.split = 'train' AND plans.prompt IS NOT NULL
    ),
    of_verdicts AS (
        SELECT {_KEY}, 'verdict' AS source, CAST(NULL AS BIGINT) AS compared_with,
               person_accepted AS chosen_accepts,
               coalesce(person_prompt, '') AS chosen_prompt, accepted AS rejected_accepts,
               refined_prompt AS rejected_prompt,
               CASE WHEN NOT person_accepted AND person_prompt IS NULL
                    THEN 'no_rewrite' END AS reason
        FROM states WHERE person_accepted <> accepted
    ),
    of_prompts AS (
        SELECT {_KEY}, 'prompt', NULL, false, person_prompt, false, refined_prompt,
               CASE WHEN person_accepted THEN 'accepted_by_people'
                    WHEN trim(refined_prompt) IN ('', person_prompt) THEN 'same_prompt' END
        FROM states WHERE person_prompt IS NOT NULL AND NOT accepted
    ),
    of_preferences AS (
        SELECT {_KEY}, 'preference', other_iteration, earlier_is_better,
               CASE WHEN earlier_is_better THEN '' ELSE later.prompt END, NOT earlier_is_better,
               CASE WHEN earlier_is_better THEN later.prompt ELSE '' END,
               CASE WHEN person_accepted <> earlier_is_better THEN 'contradicts_verdict' END
        FROM person_preferences JOIN states USING ({_KEY})
        JOIN (SELECT trajectory_id, step_number, iteration AS other_iteration, prompt
              FROM attempts) AS later USING (trajectory_id, step_number, other_iteration)
        WHERE earlier_is_better IS NOT NULL
    ),
    scored AS (
        SELECT states.*, overall, $scores AND person_accepted IS NULL AND person_prompt IS NULL
               AS decided_by_scores
        FROM states JOIN scores USING ({_KEY})
    ),
    of_score_verdicts AS (
        SELECT {_KEY}, 'score_verdict', NULL, overall > $good,
               CASE WHEN overall > $good THEN '' ELSE refined_prompt END, overall <= $good,
               CASE WHEN overall > $good THEN refined_prompt ELSE '' END,
               CASE WHEN trim(refined_prompt) = '' THEN 'no_rewrite'
                    WHEN overall BETWEEN $bad AND $good THEN 'undecided'
                    WHEN next_overall < overall AND overall < $bad THEN 'worse_rewrite' END
        FROM (SELECT *, lead(overall) OVER (
                  PARTITION BY trajectory_id, step_number ORDER BY iteration) AS next_overall
              FROM scored)
        WHERE decided_by_scores AND (NOT accepted OR overall < $bad)
    ),
    of_score_prompts AS (
        SELECT {", ".join(f"judged.{name}" for name in _KEY.split(", "))}, 'score_prompt', NULL,
               false,
               CASE WHEN own.overall > other.overall THEN own.prompt ELSE other.prompt END, false,
               CASE WHEN own.overall > other.overall THEN other.prompt ELSE own.prompt END,
               CAST(NULL AS VARCHAR)
        FROM scored AS judged
        JOIN scored AS own ON own.trajectory_id = judged.trajectory_id
            AND own.step_number = judged.step_number AND own.iteration = judged.iteration + 1
        JOIN scored AS other ON other.trajectory_id = own.trajectory_id
            AND other.step_number = own.step_number AND other.iteration > own.iteration
        WHERE judged.decided_by_scores AND NOT judged.accepted AND judged.overall <= $good
            AND own.prompt <> other.prompt
            AND own.source_image IS NOT DISTINCT FROM other.source_image
            AND abs(own.overall - other.overall) >= $gap
        QUALIFY row_number() OVER (
            PARTITION BY judged.trajectory_id, judged.step_number, judged.iteration
            ORDER BY abs(own.overall - other.overall) DESC, other.iteration) = 1
    )
    SELECT * FROM states JOIN (
        FROM of_verdicts UNION ALL FROM of_prompts UNION ALL FROM of_preferences
        UNION ALL FROM of_score_verdicts UNION ALL FROM of_score_prompts
    ) AS answers USING ({_KEY})
"""


def build_critic_dpo(
    home: Home, settings: CurationSettings
) -> tuple[pa.RecordBatchReader, Counter[str]]:
    """Rows (computed while they are read), and how many pairs were left out by reason, which is
    complete when they are read."""
    curated = ShardedLake.of(home, settings)
    groups = curated.groups()
    measured = groups if settings.critic.canvas_size is None else []
    canvas = store_canvas(home, settings, curated.map(_first_image, measured))
    dropped: Counter[str] = Counter()
    parts = _without_counts(curated.map(_rows, groups, canvas), dropped)
    return joined_rows(CRITIC_DPO, parts), dropped


def _first_image(lake: Lake, settings: CurationSettings, shards: list[str]) -> str | None:
    return first_generated_image(shard_session(lake, settings, shards, _SOURCE_IMAGES))


def _without_counts(
    parts: Iterable[tuple[pa.Table, Counter[str]]], counts: Counter[str]
) -> Iterator[pa.Table]:
    """The rows of the parts, whose counts are added up."""
    for rows, of_part in parts:
        counts.update(of_part)
        yield rows


def _rows(
    lake: Lake, settings: CurationSettings, canvas: str, shards: list[str]
) -> tuple[pa.Table, Counter[str]]:
    """Rows, and left out pairs by reason."""
    connection = shard_session(lake, settings, shards, _COLUMNS, opinions=True)
    _create_pairs(connection, settings)
    version = add_critic_question(connection, settings.critic.agent_prompt)
    sql = f"""
        SELECT concat_ws('/', {_KEY}, source, compared_with) AS row_id, prompt_id, {_KEY}, source,
               [{{'role': 'user', 'content': critic_question(goal, rewritten)}}] AS messages,
               {{'role': 'assistant',
                 'content': critic_answer(chosen_accepts, chosen_prompt, '')}} AS chosen,
               {{'role': 'assistant',
                 'content': critic_answer(rejected_accepts, rejected_prompt, '')}} AS rejected,
               [coalesce(source_image, '{canvas}'), image] AS images,
               {version}
        FROM pairs WHERE reason IS NULL ORDER BY shard, {_KEY}, source, compared_with
    """
    rows = as_rows(CRITIC_DPO, query_batches(connection, sql))
    return rows, Counter(count_reasons(connection, "pairs"))


def _create_pairs(connection: duckdb.DuckDBPyConnection, settings: CurationSettings) -> None:
    """Table `pairs`: all that there could be, with the `reason` why one is left out."""
    verdicts, preferences = settings.critic.verdicts, settings.preferences
    thresholds = {
        "scores": preferences.scores,
        "gap": preferences.min_gap,
        "good": verdicts.reject_at_most,
        "bad": verdicts.accept_at_least,
    }
    connection.execute(_PAIRS, thresholds)
