"""The training sets of a round: what its agents made, what they got wrong, and older rows.

They are in a home of their own (`plans.round_home`), with the tables and exports that the lineage
has of its sets.

- Planner: plans that led to good images at every step and, where the pack's world has an exact
  grader, to what the request asks for; with `plan_retries`, `failure_weight` times those that were
  found by asking again (`plan_retries.py`). A wrong plan is left out.
- Critic, SFT: as curation makes it, so a verdict that the scores contradict is left out: its
  reasoning is wrong, and no teacher is asked for a better one.
- Critic, RL: as curation makes it, and every verdict that the scores contradict, of whatever step,
  `failure_weight` times, with the verdict of the scores. GRPO needs no reasoning to learn from.

Rows that occurred before the round, or twice in it, are left out of all three; the critic's sets
are balanced after that.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from inference.calls.hashing import stable_hash, unit_interval
from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT, STEPS
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPT_KEY, ATTEMPTS, PLANS, SCORES, TRAJECTORIES, PlanRow
from warehouse import Home

from ..core.duckdb_session import duckdb_session
from ..core.foundry import FoundryResource
from ..curation.critic_sets import build_critic_rl, build_critic_sft
from ..curation.exports.mixing import weighted
from ..curation.exports.publisher import export_all
from ..curation.planner_sets import build_planner_sft
from ..curation.sampling import row_content
from ..curation.settings import BalanceSettings, CurationSettings
from ..curation.steps import build_steps
from ..evaluation.grading import has_exact_grader
from ..prompts.rounds import RoundPlan, own_rows, recorded_rounds, round_home
from .plan_retries import right_plans
from .settings import RoundsSettings

SETS = (PLANNER_SFT, CRITIC_SFT, CRITIC_RL)
_SOURCES = (PROMPTS, TRAJECTORIES, ATTEMPTS, SCORES)  # and plans
_FAILURE = "failure/"  # begins the row_id of what an agent got wrong
_COPY = "#"  # and its number end the row_id of a repeated row
_GOOD_PLANS = """
    SELECT plan_id FROM trajectories
    WHERE status = 'complete' AND trajectory_id NOT IN (
        SELECT trajectory_id FROM attempts JOIN scores
        USING (trajectory_id, step_number, iteration) WHERE chosen AND overall < ?
    )
"""
Records = list[dict[str, Any]]


@dataclass(frozen=True)
class RoundSets:
    """Builds the sets of a round in its home.

    Args:
        retried: right plans that were found by asking again.
    """

    foundry: FoundryResource
    plan: RoundPlan
    rounds: RoundsSettings
    retried: Sequence[PlanRow] = ()

    @property
    def home(self) -> Home:
        return round_home(self.foundry.home, self.plan.number)

    @property
    def curation(self) -> CurationSettings:
        """The profile's, of these shards alone: without imports, documents and reviews."""
        curation = self.foundry.settings.curation
        formats = {"formats": ("llamafactory", "verl"), "mix": None}
        comm = curation.planner.comm.model_copy(update={"path": None})
        return curation.model_copy(
            update={
                "exports": curation.exports.model_copy(update=formats),
                "planner": curation.planner.model_copy(update={"comm": comm}),
                "reviews": None,
            }
        )

    def build(self) -> dict[str, Counter[str]]:
        """Write sets and exports; returns the rows of each set by source.

        Raises:
            FoundryError: an export cannot be written.
        """
        home, lake = self.home, self.foundry.home.lake
        for shard in self.plan.shards:
            for table in _SOURCES:
                home.lake.write(table, lake.read(table, [shard]), shard)
            found = [row for row in self.retried if row.shard == shard]
            home.lake.write(PLANS, [*self.foundry.rows(PLANS, shard), *found], shard)
        own = {
            CRITIC_RL: self._critic_rl(),  # before SFT: it leaves other steps
            CRITIC_SFT: self._critic_sft(),
            PLANNER_SFT: self._planner_sft(),
        }
        for table, rows in own.items():
            rows += self._replay(table, round(self.rounds.replay * len(rows)))
            home.lake.write(table, pa.Table.from_pylist(rows, schema=table.arrow_schema))
        export_all(home, self.curation)
        return row_counts(home)

    def _critic_sft(self) -> Records:
        self.home.lake.write(STEPS, build_steps(self.home, self.curation)[0])
        rows = _records(build_critic_sft(self.home, self.curation)[0])
        return _balanced(self._new(CRITIC_SFT, rows))

    def _critic_rl(self) -> Records:
        failures = self._failures()
        self.home.lake.write(STEPS, build_steps(self.home, self.curation)[0])
        rows = _records(build_critic_rl(self.home, self.curation)[0])
        wrong = {_attempt(row) for row in failures}
        others = (row for row in rows if _attempt(row) not in wrong)
        new = self._weighted(self._new(CRITIC_RL, [*failures, *others]))
        return _balanced([row for row in new if not _is_failure(row)], [*filter(_is_failure, new)])

    def _failures(self) -> Records:
        """Every attempt of these shards whose verdict the scores contradict, as an RL row."""
        home, curation = self.home, self.curation
        unfiltered = curation.filter.model_copy(update={"rules": ()})
        steps = build_steps(home, curation.model_copy(update={"filter": unfiltered}))[0].read_all()
        every = pa.Table.from_pylist(
            [
                {**step, "split": "rl", "best_iteration": step["iterations"] - 1}
                for step in steps.to_pylist()
                if step["kept"]
            ],
            schema=STEPS.arrow_schema,
        )
        home.lake.write(STEPS, every)
        verdicts = curation.critic.verdicts.model_copy(update={"rl": "scores"})
        balance = BalanceSettings(mode="none")
        critic = curation.critic.model_copy(update={"verdicts": verdicts, "balance_rl": balance})
        rows = _records(build_critic_rl(home, curation.model_copy(update={"critic": critic}))[0])
        judged = home.lake.read(ATTEMPTS, columns=[*ATTEMPT_KEY, "accepted"]).to_pylist()
        said = {_attempt(row): row["accepted"] for row in judged}
        wrong = (row for row in rows if _truth(row) != said[_attempt(row)])
        return [_as_failure(row) for row in wrong]

    def _planner_sft(self) -> Records:
        good, retried = self._good_plans(), {row.plan_id for row in self.retried}
        rows = _records(build_planner_sft(self.home, self.curation)[0])
        first = [row for row in rows if row["plan_id"] in good]
        failures = [_as_failure(row) for row in rows if row["plan_id"] in retried]
        return self._weighted(self._new(PLANNER_SFT, [*first, *failures]))

    def _good_plans(self) -> set[str]:
        accept_at_least = self.curation.critic.verdicts.accept_at_least
        found = duckdb_session(self.home).execute(_GOOD_PLANS, [accept_at_least]).fetchall()
        good = {plan_id for (plan_id,) in found}
        if has_exact_grader(self.foundry.settings):
            good &= right_plans(self.foundry, self.plan.shards)
        return good

    def _new(self, table: Table, rows: Records) -> Records:
        """Those that did not occur before, each once, and its copies by balance."""
        older = {row_content(row) for row in older_rows(self.foundry.home, self.plan.number, table)}
        first = {row_content(row): _original(row) for row in reversed(rows)}
        return [
            row
            for row in rows
            if (content := row_content(row)) not in older and first[content] == _original(row)
        ]

    def _weighted(self, rows: Records) -> Records:
        """The same, with failures as often as the settings say."""
        repeated = weighted(filter(_is_failure, rows), self.rounds.failure_weight)
        return [row for row in rows if not _is_failure(row)] + [*_numbered(repeated)]

    def _replay(self, table: Table, count: int) -> Records:
        """Older rows: of the lineage's set, and what earlier rounds made."""
        number = self.plan.number
        rows = [*older_rows(self.foundry.home, number, table)]
        rows.sort(key=lambda row: stable_hash("replay", number, row["row_id"]))
        return rows[:count]


def older_rows(home: Home, number: int, table: Table) -> Iterator[dict[str, Any]]:
    """Rows of the lineage's set, and of rounds before round `number`, without copies by weight."""
    yield from home.lake.read(table).to_pylist()
    for plan in recorded_rounds(home):
        if plan.number < number:
            own = own_rows(round_home(home, plan.number), table)
            yield from (row for row in own if not is_weight_copy(row))


def is_weight_copy(row: dict[str, Any]) -> bool:
    """Whether a row repeats another because failures weigh more."""
    return _COPY in row["row_id"]


def row_counts(home: Home) -> dict[str, Counter[str]]:
    """Rows of a round's sets by source."""
    counts: dict[str, Counter[str]] = {}
    for table in SETS:
        own = own_rows(home, table)
        failures = sum(map(_is_failure, own))
        replayed = home.lake.rows(table) - len(own)
        counts[table.name] = Counter(new=len(own) - failures, failure=failures, replay=replayed)
    return counts


def _attempt(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ATTEMPT_KEY)


def _original(row: dict[str, Any]) -> object:
    """What a row and its copies have in common."""
    return _attempt(row) if "iteration" in row else row["row_id"]


def _as_failure(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "row_id": f"{_FAILURE}{row['row_id']}"}


def _is_failure(row: dict[str, Any]) -> bool:
    return str(row["row_id"]).startswith(_FAILURE)


def _truth(row: dict[str, Any]) -> bool:
    """The verdict that a row of a critic's set teaches."""
    return bool(row["evaluation"]["success"] if "evaluation" in row else row["accepted"])


def _records(rows: pa.RecordBatchReader) -> Records:
    return rows.read_all().to_pylist()


def _numbered(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Repeated rows with ids and copy numbers of their own."""
    seen: Counter[str] = Counter()
    for row in rows:
        row_id, copy = row["row_id"], seen[row["row_id"]]
        seen[row_id] += 1
        yield {**row, "row_id": f"{row_id}{_COPY}{copy}", "copy_number": copy} if copy else row


def _balanced(others: Records, failures: Sequence[dict[str, Any]] = ()) -> Records:
    """Both, with rows of the commoner verdict left out of `others`, as far as there are such."""
    counts = Counter(_truth(row) for row in (*others, *failures))
    common = counts[True] > counts[False]
    excess = abs(counts[True] - counts[False])
    candidates = [row["row_id"] for row in others if _truth(row) == common]
    left_out = set(sorted(candidates, key=lambda row_id: unit_interval(row_id))[:excess])
    return [row for row in others if row["row_id"] not in left_out] + [*failures]
