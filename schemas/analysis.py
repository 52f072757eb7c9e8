"""Views for the questions that everybody asks of trajectories: acceptance, cost, agreement, gain,
time. Rows of users' requests count as their pack."""

from pydantic import Field

from .base import Row, View


class AcceptanceRow(Row):
    """How often the critic accepted, by category and iteration."""

    pack: str = Field(description="Pack of the prompts")
    category: str = Field(description="Main category")
    iteration: int = Field(description="0-based; 0 is the plan's own prompt")
    attempts: int = Field(description="Attempts, each an image and a verdict")
    accepted: int = Field(description="Those that the critic accepted")
    accepted_share: float = Field(description="Their share")
    overall: float | None = Field(description="Mean overall score, 0-10; null: none is scored")


class StepCostRow(Row):
    """What an accepted step cost, by category: plans, drawings, verdicts and scores."""

    pack: str = Field(description="Pack of the prompts")
    category: str = Field(description="Main category")
    steps: int = Field(description="Accepted steps with an image")
    cost_usd: float | None = Field(
        description="Cost of all calls of plans, trajectories and scores; null: none has a price"
    )
    usd_per_step: float | None = Field(description="Cost of an accepted step; null: unknown")
    unpriced: int = Field(description="Answered calls without a price: not in the cost")


class CriticAgreementRow(Row):
    """How often critic and scorer agree, for every grade from which an image may count as good."""

    critic: str = Field(description="Backend and model of the critic")
    scorer: str = Field(description="Backend and model of the scorer")
    good_from: int = Field(description="Overall score from which the scorer counts as accepting")
    attempts: int = Field(description="Attempts with verdict and score")
    both_accept: int = Field(description="Accepted by both")
    critic_alone: int = Field(description="Accepted by the critic, and scored lower")
    scorer_alone: int = Field(description="Rejected by the critic, and scored as high")
    both_reject: int = Field(description="Accepted by neither")
    agreement: float = Field(description="Share on which they agree")


class RefinementGainRow(Row):
    """What a rewritten prompt gained over the attempt before it."""

    critic: str = Field(description="Backend and model of the critic that rewrote the prompt")
    generator: str = Field(description="Backend and model that drew both")
    iteration: int = Field(description="Iteration of the later attempt, from 1")
    attempts: int = Field(description="Pairs of attempts with a score each")
    before: float = Field(description="Mean overall score before, 0-10")
    after: float = Field(description="Mean overall score after")
    gain: float = Field(description="Mean difference")
    better_share: float = Field(description="Share of pairs with a higher score after")


class CallTimeRow(Row):
    """How long calls of a model take; cached and failed ones do not count."""

    asset: str = Field(description="Asset (or service) that made the calls")
    role: str = Field(description="Role of the model")
    model: str = Field(description="Backend and model")
    calls: int = Field(description="Answered calls")
    mean_seconds: float = Field(description="Mean wall time, retries included")
    median_seconds: float = Field(description="Median wall time")
    p95_seconds: float = Field(description="Wall time that 95 % of the calls do not exceed")
    total_hours: float = Field(description="All of them, one after the other")


_CALL_ASSETS = "('plans', 'trajectories', 'scores')"

ACCEPTANCE = View(
    "acceptance",
    AcceptanceRow,
    key=("pack", "category", "iteration"),
    tables=("attempts", "prompts", "scores"),
    sql="""\
SELECT
    pack, category, iteration,
    count(*) AS attempts,
    count(*) FILTER (accepted) AS accepted,
    avg(CAST(accepted AS INTEGER)) AS accepted_share,
    avg(overall) AS overall
FROM attempts JOIN prompts USING (prompt_id)
LEFT JOIN scores USING (trajectory_id, step_number, iteration)
GROUP BY pack, category, iteration
ORDER BY pack, category, iteration""",
    example="SELECT iteration, sum(accepted) / sum(attempts) AS share FROM acceptance\n"
    "GROUP BY iteration ORDER BY iteration;",
)
STEP_COSTS = View(
    "step_costs",
    StepCostRow,
    key=("pack", "category"),
    tables=("attempts", "prompts", "model_calls"),
    sql=f"""\
SELECT
    pack, category,
    coalesce(steps, 0) AS steps,
    cost_usd,
    cost_usd / nullif(steps, 0) AS usd_per_step,
    unpriced
FROM (
    SELECT pack, category,
        sum(cost_usd) AS cost_usd,
        count(*) FILTER (cost_usd IS NULL AND error IS NULL AND NOT cached) AS unpriced
    FROM model_calls JOIN prompts USING (prompt_id)
    WHERE asset IN {_CALL_ASSETS}
    GROUP BY pack, category
)
LEFT JOIN (
    SELECT pack, category, count(*) AS steps
    FROM attempts JOIN prompts USING (prompt_id)
    WHERE accepted AND chosen
    GROUP BY pack, category
) USING (pack, category)
ORDER BY pack, category""",
    example="SELECT category, steps, usd_per_step, unpriced FROM step_costs\n"
    "ORDER BY usd_per_step DESC;",
)
CRITIC_AGREEMENT = View(
    "critic_agreement",
    CriticAgreementRow,
    key=("critic", "scorer", "good_from"),
    tables=("attempts", "scores"),
    sql="""\
SELECT
    critic, scorer, good_from,
    count(*) AS attempts,
    count(*) FILTER (accepted AND overall >= good_from) AS both_accept,
    count(*) FILTER (accepted AND overall < good_from) AS critic_alone,
    count(*) FILTER (NOT accepted AND overall >= good_from) AS scorer_alone,
    count(*) FILTER (NOT accepted AND overall < good_from) AS both_reject,
    avg(CAST(accepted = (overall >= good_from) AS INTEGER)) AS agreement
FROM attempts JOIN scores USING (trajectory_id, step_number, iteration),
    (SELECT CAST(unnest(range(1, 11)) AS BIGINT) AS good_from)
GROUP BY critic, scorer, good_from
ORDER BY critic, scorer, good_from""",
    example="SELECT * FROM critic_agreement WHERE good_from = 8;",
)
REFINEMENT_GAINS = View(
    "refinement_gains",
    RefinementGainRow,
    key=("critic", "generator", "iteration"),
    tables=("attempts", "scores"),
    sql="""\
SELECT
    critic, generator, iteration,
    count(*) AS attempts,
    avg(before) AS before,
    avg(overall) AS after,
    avg(overall - before) AS gain,
    avg(CAST(overall > before AS INTEGER)) AS better_share
FROM (
    SELECT critic, generator, iteration, overall,
        lag(overall) OVER (PARTITION BY trajectory_id, step_number ORDER BY iteration) AS before
    FROM attempts JOIN scores USING (trajectory_id, step_number, iteration)
)
WHERE before IS NOT NULL AND iteration > 0
GROUP BY critic, generator, iteration
ORDER BY critic, generator, iteration""",
    example="SELECT iteration, attempts, gain, better_share FROM refinement_gains\n"
    "ORDER BY iteration;",
)
CALL_TIMES = View(
    "call_times",
    CallTimeRow,
    key=("asset", "role", "model"),
    tables=("model_calls",),
    sql="""\
SELECT
    asset, role, backend || '/' || model AS model,
    count(*) AS calls,
    avg(seconds) AS mean_seconds,
    quantile_cont(seconds, 0.5) AS median_seconds,
    quantile_cont(seconds, 0.95) AS p95_seconds,
    sum(seconds) / 3600 AS total_hours
FROM model_calls
WHERE error IS NULL AND NOT cached
GROUP BY asset, role, backend || '/' || model
ORDER BY asset, role, total_hours DESC""",
    example="SELECT role, model, calls, median_seconds FROM call_times\nORDER BY total_hours DESC;",
)
