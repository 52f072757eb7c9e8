"""Where agents fail: rates by category, wording and skill, and quotas that follow them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from inference.backends.checkpoint.manifest import AgentRole, is_agent_of
from schemas.rounds import FailureRow
from warehouse import Home

from ..core.duckdb_session import duckdb_session
from ..core.statistics import wilson_interval
from ..evaluation.items import promotion_benchmark
from ..prompts.rounds import Quotas
from ..prompts.settings import FailureQuotaSettings

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
