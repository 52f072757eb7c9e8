"""What a round gave: the row of a round, where agents fail, and quotas that follow their failures.

The row has what evaluation says of the round's agents, and whether another round is worth it.
Failures are rates by category, wording and skill.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from inference.backends.checkpoint.manifest import AgentRole, is_agent_of
from schemas.rounds import FailureRow, RoundDecision, RoundMeasure, RoundRow, RoundRowCount
from schemas.training import EVALUATIONS
from training.registry import CheckpointRegistry
from warehouse import Home

from ..core.duckdb_session import duckdb_session
from ..core.foundry import FoundryResource
from ..core.plotting import ACCENT, BAD, GOOD, OTHER, figure_png, new_figure
from ..core.statistics import wilson_interval
from ..evaluation.items import PARTS, benchmark_name, pack_name, promotion_benchmark
from ..evaluation.promotion import assess_candidates, values_by_system
from ..evaluation.systems import System, newest_system, system_in_use
from ..evaluation.variants import NEW_CRITIC, NEW_PLANNER, NEWEST, PROMOTED
from ..prompts.rounds import Quotas, RoundPlan
from ..prompts.settings import FailureQuotaSettings
from .data import row_counts
from .safeguards import diversity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUCCESS = "final_success"
METRICS = (
    _SUCCESS,
    "plan_correct",
    "verdict_accuracy_true",
    "verdict_accuracy_false",
    "generator_calls",
)


_RATES = """
    WITH step_outcomes AS (
        SELECT trajectory_id, step_number, any_value(critic) AS critic,
               bool_or(chosen AND overall < $good) OR NOT bool_or(chosen AND accepted) AS failed
        FROM attempts LEFT JOIN scores USING (trajectory_id, step_number, iteration)
        GROUP BY ALL
    ),
    planners AS (SELECT prompt_id, any_value(planner) AS planner FROM plans GROUP BY 1),
    critics AS (
        SELECT trajectory_id, any_value(critic) AS critic, bool_or(failed) AS failed
        FROM step_outcomes GROUP BY 1
    ),
    outcomes AS (
        SELECT 'trajectories' AS source, coalesce(planner, 'none') AS planner,
               coalesce(critic, 'none') AS critic, category, template_id,
               status <> 'complete' OR coalesce(failed, true) AS failed
        FROM trajectories JOIN prompts USING (prompt_id) LEFT JOIN planners USING (prompt_id)
        LEFT JOIN critics USING (trajectory_id)
        WHERE split = 'train'
        UNION ALL
        SELECT 'evaluation', planner, critic, category, template_id, min(value) < 1
        FROM evaluations JOIN prompts ON item_id = prompts.prompt_id
        WHERE benchmark = $benchmark AND metric = 'final_success'
            AND variant IN ('full_rl', 'full_sft', 'promoted') AND training_seed IS NULL
        GROUP BY planner, critic, category, template_id, item_id
    )
    SELECT source, planner, critic, 'category' AS kind, category AS name, count(*) AS count,
           count(*) FILTER (failed) AS failures
    FROM outcomes GROUP BY ALL
    UNION ALL
    SELECT source, planner, critic, 'wording', template_id, count(*), count(*) FILTER (failed)
    FROM outcomes GROUP BY ALL
    UNION ALL
    SELECT 'trajectories', planner, step_outcomes.critic, 'skill',
           coalesce(nullif(lower(regexp_extract(plans.prompt, '\\w+')), ''), '-'),
           count(*), count(*) FILTER (step_outcomes.failed)
    FROM step_outcomes JOIN trajectories USING (trajectory_id)
    JOIN plans USING (plan_id, step_number)
    JOIN prompts ON trajectories.prompt_id = prompts.prompt_id
    WHERE split = 'train' GROUP BY ALL
    ORDER BY ALL
"""


def blocked_round(foundry: FoundryResource, plan: RoundPlan, why: str) -> RoundRow:
    """The row of a round that a safeguard stopped."""
    return _row(foundry, plan, None, [], "blocked", False, why)


def finished_round(foundry: FoundryResource, plan: RoundPlan) -> RoundRow:
    """The row of a round that was evaluated and decided about by promotion."""
    before, in_use = System(plan.planner, plan.critic), system_in_use(foundry.home)
    if in_use is None or in_use == before:
        tried = newest_system(foundry)
        measures = round_measures(foundry, tried, before)
        why = f"no new version was accepted: {_why_not(foundry, tried)}"
        return _row(foundry, plan, tried, measures, "not_accepted", False, why)
    measures = round_measures(foundry, in_use, before)
    continues, why = _helps(foundry, measures)
    return _row(foundry, plan, in_use, measures, "accepted", continues, why)


def round_measures(foundry: FoundryResource, after: System, before: System) -> list[RoundMeasure]:
    """Means of a system, and paired differences to another, on every benchmark."""
    settings, pack = foundry.settings.evaluation, pack_name(foundry.settings)
    rows, measures = foundry.rows(EVALUATIONS), []
    tried = dict.fromkeys((*NEWEST.values(), NEW_PLANNER, NEW_CRITIC), after)
    variants = tried | {PROMOTED: before}
    for benchmark in (benchmark_name(pack, *part) for part in PARTS):
        values = values_by_system(rows, benchmark, variants, settings)
        for metric in METRICS:
            if not (mean := values.mean(after, metric)):
                continue
            gain = values.difference(after, before, metric)
            measures.append(
                RoundMeasure(
                    benchmark=benchmark,
                    metric=metric,
                    mean=mean.mean,
                    low=mean.low,
                    high=mean.high,
                    count=mean.count,
                    difference=gain and gain.mean,
                    difference_low=gain and gain.low,
                    difference_high=gain and gain.high,
                )
            )
    return measures


def _why_not(foundry: FoundryResource, tried: System) -> str:
    registry = CheckpointRegistry(foundry.home)
    rejected = [
        event.why
        for name, version in tried.versions.items()
        for event in registry.history(name)
        if event.action == "reject" and event.version == version
    ]
    return "; ".join(rejected or (each.why for each in assess_candidates(foundry, registry)))


def _helps(foundry: FoundryResource, measures: Sequence[RoundMeasure]) -> tuple[bool, str]:
    """Whether final success on development items rose, as `rounds.continue_if` says."""
    benchmark = promotion_benchmark(pack_name(foundry.settings))
    found = [m for m in measures if m.metric == _SUCCESS and m.benchmark == benchmark]
    if not found or found[0].difference is None:
        return False, "promoted, but not compared with the agents before on development items"
    gain, low, high = found[0].difference, found[0].difference_low, found[0].difference_high
    rounds = foundry.settings.rounds
    decisive = low if rounds and rounds.continue_if == "interval" else gain
    continues = decisive is not None and decisive > 0
    change = f"final success on {benchmark} changed by {gain:+.3f} [{low:+.3f}, {high:+.3f}]"
    return continues, change if continues else f"{change}: another round is not worth it"


def _row(
    foundry: FoundryResource,
    plan: RoundPlan,
    system: System | None,
    measures: list[RoundMeasure],
    decision: RoundDecision,
    continues: bool,
    why: str,
) -> RoundRow:
    ended = datetime.now(UTC)
    counts = row_counts(foundry.home, plan.number)
    return RoundRow(
        round=plan.number,
        planner=system.planner if system else None,
        critic=system.critic if system else None,
        parent_planner=plan.planner,
        parent_critic=plan.critic,
        shards=list(plan.shards),
        rows=[
            RoundRowCount(data_set=name, source=source, rows=count)
            for name, by_source in counts.items()
            for source, count in by_source.items()
        ],
        measures=measures,
        diversity=diversity(foundry.home, list(plan.shards)),
        seconds=(ended - plan.began_at).total_seconds(),
        decision=decision,
        continues=continues,
        why=why,
        ended_at=ended,
    )


_VARIED = {"distinct_plans": OTHER, "distinct_refinements": GOOD, "distinct_images": ACCENT}


def rounds_plot(rows: Sequence[RoundRow], dev: str) -> bytes:
    """A panel each for final success, generator calls and diversity. `dev`: its benchmark.

    The first round's parents are round 0, where evaluation compared them.
    """
    panels = new_figure(6.2, "What each round changed", rows=[1, 1, 1])
    with panels as (figure, (success, cost, variety)):
        for benchmark, colour in ((dev, OTHER), (f"{dev.removesuffix('-dev')}-test", BAD)):
            _measure(success, rows, benchmark, "final_success", colour)
            _measure(cost, rows, benchmark, "generator_calls", colour)
        for name, colour in _VARIED.items():
            values = [getattr(row.diversity, name) for row in rows]
            variety.plot([row.round for row in rows], values, "o-", color=colour, label=name)
        titles = ("final success", "generator calls\na request", "diversity")
        for axes, title in zip((success, cost, variety), titles, strict=True):
            axes.set_ylabel(title)
            axes.grid(axis="y")
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="best", fontsize=8)
        variety.set_xlabel("round")
        variety.set_xticks([0, *(row.round for row in rows)])
        return figure_png(figure)


def _measure(
    axes: "Axes", rows: Sequence[RoundRow], benchmark: str, metric: str, colour: str
) -> None:
    points = [
        (row.round, each)
        for row in rows
        for each in row.measures
        if (each.benchmark, each.metric) == (benchmark, metric)
    ]
    if not points:
        return
    numbers = [number for number, _ in points]
    means = [each.mean for _, each in points]
    spread = [[m.mean - m.low for _, m in points], [m.high - m.mean for _, m in points]]
    axes.errorbar(numbers, means, yerr=spread, fmt="o-", color=colour, capsize=3, label=benchmark)
    if (start := _start(points[0])) is not None:
        axes.plot([numbers[0] - 1, numbers[0]], [start, means[0]], "o--", color=colour)


def _start(first: tuple[int, RoundMeasure]) -> float | None:
    """The mean of the agents that the first round began with."""
    number, measure = first
    if number != 1 or measure.difference is None:
        return None
    return measure.mean - measure.difference


def failure_rows(home: Home, pack: str, accept_at_least: float) -> list[FailureRow]:
    """Rates of failure of all agents, by category, wording and skill."""
    values = {"good": accept_at_least, "benchmark": promotion_benchmark(pack)}
    rows = []
    for record in duckdb_session(home).sql(_RATES, params=values).to_arrow_table().to_pylist():
        failures, count = record["failures"], record["count"]
        low, high = wilson_interval(failures, count)
        rows.append(FailureRow(**record, rate=failures / count, low=low, high=high))
    return rows


def quotas_of(
    rows: Iterable[FailureRow], plan_agents: Mapping[AgentRole, str], settings: FailureQuotaSettings
) -> Quotas:
    """Quotas that follow the failures of some agents (role -> name@version).

    Categories from trajectories and evaluation; templates from trajectories alone, because those of
    development items are held out. Where these agents have no rows, all cells keep their share.
    """
    counted: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in rows:
        ours = is_agent_of(plan_agents["planner"], row.planner)
        ours = ours and is_agent_of(plan_agents["critic"], row.critic)
        if ours and (row.kind == "category" or row.source == "trajectories"):
            failures, count = counted[row.kind].get(row.name, (0, 0))
            counted[row.kind][row.name] = failures + row.failures, count + row.count
    return Quotas(
        categories=bounded_weights(counted["category"], settings),
        templates=bounded_weights(counted["wording"], settings),
    )


def bounded_weights(
    counted: Mapping[str, tuple[int, int]], settings: FailureQuotaSettings
) -> dict[str, float]:
    """Cell -> how many times its share it gets, by (failures, count); the mean of all is 1.

    A cell's rate is drawn towards the mean rate by `prior` requests. Weights are proportional to
    rates, cut off at the bounds; the proportion is such that their mean, over equal shares, is 1.
    """
    if not counted:
        return {}
    total = sum(count for _, count in counted.values())
    mean = sum(failures for failures, _ in counted.values()) / total
    if mean == 0:
        return dict.fromkeys(sorted(counted), 1.0)
    rates = {
        name: (failures + settings.prior * mean) / (count + settings.prior) / mean
        for name, (failures, count) in sorted(counted.items())
    }

    def weights(factor: float) -> dict[str, float]:
        low, high = settings.at_least, settings.at_most
        return {name: min(high, max(low, factor * rate)) for name, rate in rates.items()}

    low, high = 0.0, settings.at_most / min(rates.values())
    for _ in range(60):  # bisection: the sum grows with the factor
        middle = (low + high) / 2
        low, high = (middle, high) if sum(weights(middle).values()) < len(rates) else (low, middle)
    return {name: round(weight, 6) for name, weight in weights(high).items()}
