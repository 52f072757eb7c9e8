"""The training sets of a round: what its agents made, what they got wrong, and older rows.

They are rows of the table `round_rows`, with their origin and how often they are trained on.

- Planner: plans that led to good images at every step and, where the pack's world has an exact
  grader, to what the request asks for; with `plan_retries`, `failure_weight` times those that were
  found by asking again (`plan_retries.py`). A wrong plan is left out.
- Critic, SFT: as curation makes it, so a verdict that the scores contradict is left out: its
  reasoning is wrong, and no teacher is asked for a better one.
- Critic, RL: as curation makes it of verdicts that agree with the scores, and every verdict that
  the scores contradict, of whatever step, `failure_weight` times, with the verdict of the scores.
  GRPO needs no reasoning to learn from.

Rows that occurred before the round, or twice in it, are left out of all three; the critic's sets
are balanced after that.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT, STEPS
from schemas.prompts import PROMPTS
from schemas.rounds import ROUND_ROWS, RowOrigin
from schemas.trajectories import PLANS, PlanRow
from warehouse import Home

from ..core.duckdb_session import duckdb_session, shard_in
from ..core.foundry import FoundryResource
from ..curation.critic_sets import build_critic_rl, build_critic_sft, build_wrong_verdicts
from ..curation.exports.publisher import export
from ..curation.planner_sets import build_planner_sft, plan_rows
from ..curation.settings import CurationSettings
from ..curation.sources import (
    content_sql,
    copies,
    distinct_sql,
    images_sql,
    round_partition,
    round_rows,
    verdict_sql,
)
from ..curation.steps import build_steps
from ..evaluation.grading import has_exact_grader
from ..prompts.rounds import RoundPlan, recorded_rounds
from .plan_retries import right_plans
from .settings import RoundsSettings

SETS = (PLANNER_SFT, CRITIC_SFT, CRITIC_RL)
_GOOD_PLANS = """
    SELECT plan_id FROM trajectories
    WHERE status = 'complete' AND {shards} AND trajectory_id NOT IN (
        SELECT trajectory_id FROM attempts JOIN scores
        USING (trajectory_id, step_number, iteration) WHERE chosen AND overall < {least}
    )
"""
# SQL for what only rows of `critic_rl` have.
_TRUTH = "origin_prompt, rewritten_prompt, evaluation"
_NO_TRUTH = """
    NULL::VARCHAR AS origin_prompt, NULL::VARCHAR AS rewritten_prompt,
    NULL::STRUCT(success BOOLEAN, semantics DOUBLE, quality DOUBLE) AS evaluation
"""
_COLUMNS = f"prompt_id, messages, images, {_TRUTH}"
_FRESH = """
    CREATE TEMP TABLE fresh AS
    SELECT row_id, original, origin, weight, position, {verdict} AS accepted, {columns}
    FROM ({distinct})
    WHERE weight > 0 AND {content} NOT IN (SELECT {older_content} FROM older)
"""
# As many of one verdict as of the other, as far as there are rows that may be left out.
_BALANCE = """
    DELETE FROM fresh WHERE row_id IN (
        SELECT row_id
        FROM fresh, (SELECT sum(CASE WHEN accepted THEN weight ELSE -weight END) AS excess
                     FROM fresh)
        WHERE origin = 'new' AND accepted = (excess > 0)
        QUALIFY row_number() OVER (ORDER BY md5(row_id)) <= abs(excess)
    )
"""
_OWN = f"""
    SELECT row_id, origin, (sum(weight) OVER (PARTITION BY original))::BIGINT AS weight, {_COLUMNS}
    FROM fresh QUALIFY row_number() OVER (PARTITION BY original ORDER BY position) = 1
    ORDER BY position
"""
_REPLAYED = f"""
    SELECT row_id, 'replay' AS origin, 1 AS weight, {_COLUMNS}
    FROM older ORDER BY md5(concat_ws('/', $round, row_id)) LIMIT $count
"""


@dataclass(frozen=True)
class RoundSets:
    """Builds the sets of a round.

    Args:
        retried: right plans that were found by asking again.
    """

    foundry: FoundryResource
    plan: RoundPlan
    rounds: RoundsSettings
    retried: Sequence[PlanRow] = ()

    @property
    def curation(self) -> CurationSettings:
        """The profile's, without imported documents, reviews and contradicted verdicts."""
        curation = self.foundry.settings.curation
        comm = curation.planner.comm.model_copy(update={"path": None})
        verdicts = curation.critic.verdicts.model_copy(update={"rl": "drop"})
        return curation.model_copy(
            update={
                "planner": curation.planner.model_copy(update={"comm": comm}),
                "critic": curation.critic.model_copy(update={"verdicts": verdicts}),
                "reviews": None,
            }
        )

    def build(self) -> dict[str, Counter[RowOrigin]]:
        """Write sets and exports; returns the rows of each set by origin.

        Raises:
            FoundryError: an export cannot be written.
        """
        home = self.foundry.home
        for table, made in self._made().items():
            home.lake.write(
                ROUND_ROWS, self._rows(table, made), round_partition(self.plan.number, table)
            )
        for form in ("llamafactory", "verl"):
            export(home, self.curation, form, self.plan.number)
        return row_counts(home, self.plan.number)

    def _made(self) -> dict[Table, pa.Table]:
        """All rows of the round's shards, by set, with their origin and weight."""
        home, curation, shards = self.foundry.home, self.curation, self.plan.shards
        steps = build_steps(home, curation, shards)[0].read_all()
        wrong = build_wrong_verdicts(home, curation, self._all_attempts())[0]
        return {
            PLANNER_SFT: self._with_origins(self._good_plans(), self._retried_plans()),
            CRITIC_SFT: self._with_origins(build_critic_sft(home, curation, steps)[0].read_all()),
            CRITIC_RL: self._with_origins(
                build_critic_rl(home, curation, steps)[0].read_all(), wrong.read_all()
            ),
        }

    def _all_attempts(self) -> pa.Table:
        """Every step that is scored, uncut and as one of RL."""
        unfiltered = self.curation.filter.model_copy(update={"rules": ()})
        curation = self.curation.model_copy(update={"filter": unfiltered})
        steps = build_steps(self.foundry.home, curation, self.plan.shards)[0].read_all()
        sql = "SELECT * REPLACE ('rl' AS split, iterations - 1 AS best_iteration) FROM steps"
        with duckdb.connect() as connection:
            connection.register("steps", steps.filter(pc.field("kept")))
            return connection.sql(sql).to_arrow_table().cast(STEPS.arrow_schema)

    def _good_plans(self) -> pa.Table:
        """Rows of plans that led to good images and, where a grader can tell, are right."""
        home, shards = self.foundry.home, self.plan.shards
        least = self.curation.critic.verdicts.accept_at_least
        with closing(duckdb_session(home)) as connection:
            sql = _GOOD_PLANS.format(shards=shard_in([*shards]), least=least)
            good = {plan_id for (plan_id,) in connection.execute(sql).fetchall()}
        if has_exact_grader(self.foundry.settings):
            good &= right_plans(self.foundry, shards)
        rows = build_planner_sft(home, self.curation, shards)[0].read_all()
        return rows.filter(pc.field("plan_id").isin([*good]))

    def _retried_plans(self) -> pa.Table:
        prompts = self.foundry.home.lake.read(PROMPTS, self.plan.shards)
        return plan_rows(prompts, PLANS.to_arrow(self.retried), self.curation.planner)

    def _with_origins(self, new: pa.Table, failures: pa.Table | None = None) -> pa.Table:
        """Both, failures first, with columns `origin`, `weight` and `position`."""
        failed = new.slice(0, 0) if failures is None else failures
        repeated = [copies(i, self.rounds.failure_weight) for i in failed["row_id"].to_pylist()]
        rows = pa.concat_tables([failed, new])
        added = {
            "origin": pa.array(["failure"] * failed.num_rows + ["new"] * new.num_rows, pa.string()),
            "weight": pa.array(repeated + [1] * new.num_rows, pa.int64()),
            "position": pa.array(range(rows.num_rows), pa.int64()),
        }
        for name, values in added.items():
            rows = rows.append_column(name, values)
        return rows

    def _rows(self, table: Table, made: pa.Table) -> pa.Table:
        """The set: what is new of the rows that were made, balanced, and older rows."""
        number, columns = self.plan.number, table.columns
        with duckdb.connect() as connection:
            connection.register("made", made)
            connection.register("older", older_rows(self.foundry.home, number, table))
            connection.execute(
                _FRESH.format(
                    verdict=verdict_sql(columns),
                    columns=_columns(table),
                    distinct=distinct_sql("made", columns, "position"),
                    content=content_sql(columns),
                    older_content=OLDER_CONTENT,
                )
            )
            connection.execute(_BALANCE)
            own = connection.sql(_OWN).to_arrow_table()
            count = round(self.rounds.replay * (pc.sum(own["weight"]).as_py() or 0))
            values = {"round": number, "count": count}
            replayed = connection.sql(_REPLAYED, params=values).to_arrow_table()
        shared = {"round": number, "data_set": table.name}
        rows = [{**row, **shared} for row in [*own.to_pylist(), *replayed.to_pylist()]]
        return pa.Table.from_pylist(rows, schema=ROUND_ROWS.arrow_schema)


OLDER_CONTENT = content_sql(ROUND_ROWS.columns)
"""SQL of the content of `older_rows`, which has the columns of `round_rows`."""


def older_rows(home: Home, number: int, table: Table) -> pa.Table:
    """Rows of the lineage's set, and of rounds before round `number`, each once."""
    with duckdb.connect() as connection:
        connection.register("lineage", home.lake.read(table))
        earlier = [plan.number for plan in recorded_rounds(home) if plan.number < number]
        connection.register("rounds", round_rows(home, earlier, table))
        return connection.sql(
            f"SELECT row_id, {_columns(table)} FROM lineage "
            f"UNION ALL SELECT row_id, {_COLUMNS} FROM rounds"
        ).to_arrow_table()


def row_counts(home: Home, number: int) -> dict[str, Counter[RowOrigin]]:
    """Rows of a round's sets by origin, as often as they are trained on."""
    empty: dict[RowOrigin, int] = {"new": 0, "failure": 0, "replay": 0}
    counts = {table.name: Counter(empty) for table in SETS}
    partitions = [round_partition(number, table) for table in SETS]
    for row in home.lake.read(ROUND_ROWS, partitions, ["data_set", "origin", "weight"]).to_pylist():
        counts[row["data_set"]][row["origin"]] += row["weight"]
    return counts


def _columns(table: Table) -> str:
    """SQL for what `round_rows` has of a row of a set."""
    truth = _TRUTH if table is CRITIC_RL else _NO_TRUTH
    return f"prompt_id, messages, {images_sql(table.columns)} AS images, {truth}"
