"""Views for the questions that everybody asks of trajectories: acceptance, cost, agreement, gain,
time. Rows of users' requests count as their pack."""

from datetime import date, datetime

from pydantic import Field

from .base import Row, Table, View


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


class ServerHoursRow(Row):
    """GPUs that a model server of a profile held on one day: from one start of it to its end."""

    run_id: str = Field(description="The server's run: from one start to its end")
    day: date = Field(description="Day, UTC; a run over midnight has a row for each of its days")
    server: str = Field(description="Its name in the profile")
    model: str = Field(description="What it serves, as in the view `costs`")
    started_at: datetime = Field(description="When it got its GPUs (or the day began), UTC")
    ended_at: datetime = Field(
        description="When it gave them back (or the day ended), UTC; of a server that runs or was "
        "killed, its last sign of life, of which there is one a minute"
    )
    gpus: float = Field(description="Number of its GPUs, by the share of their memory")
    gpu_hours: float = Field(description="`gpus` times the hours of the row")
    cost_usd: float | None = Field(
        description="Their price by `gpu_hour_usd` of the server, or of trainings; null: none"
    )


class CostRow(Row):
    """What one model cost for one shard of one asset on one day, one training, or one day of a
    model's servers."""

    day: date = Field(description="Day that calls began, a training ended, or a server ran, UTC")
    asset: str = Field(
        description="Asset (or service) that made the calls, or was trained; `servers`: those "
        "that the profile names, which all assets share"
    )
    shard: str | None = Field(description="Shard of the prompts; null: a training or server")
    role: str | None = Field(description="Role of the model; null: a training or server")
    model: str = Field(description="Backend and model, as in `attempts`; or a checkpoint's version")
    calls: int | None = Field(description="Calls, with those below; null: a training or server")
    cached: int | None = Field(description="Calls answered from another asset's journal, for free")
    failed: int | None = Field(description="Calls that ended in an error")
    retries: int | None = Field(description="Retries of all calls after their first try")
    input_tokens: int | None = Field(description="Prompt tokens; null: none were counted")
    output_tokens: int | None = Field(description="Completion tokens, likewise")
    uncounted: int | None = Field(
        description="Answered calls without a number of tokens: not in the sums of tokens"
    )
    images: int | None = Field(description="Images sent and received")
    seconds: float | None = Field(description="Wall time of all calls, added, or of the trainers")
    cost_usd: float | None = Field(description="Cost in USD; null: nothing of it has a price")
    estimated_usd: float | None = Field(
        description="Part of it that is an estimate: requests without an answer; null: none"
    )
    unpriced: int | None = Field(
        description="Answered calls, trainings (1) and runs of servers without a price: not in "
        "`cost_usd`"
    )
    gpu_hours: float | None = Field(
        description="GPUs times hours of a training or of servers; null: none, not measured, or "
        "calls"
    )


_CALLS = """\
SELECT
    CAST(started_at AT TIME ZONE 'UTC' AS DATE) AS day,
    asset, shard, role, backend || '/' || model AS model,
    count(*) AS calls,
    count(*) FILTER (cached) AS cached,
    count(*) FILTER (error IS NOT NULL) AS failed,
    CAST(sum(retries) AS BIGINT) AS retries,
    CAST(sum(input_tokens) AS BIGINT) AS input_tokens,
    CAST(sum(output_tokens) AS BIGINT) AS output_tokens,
    count(*) FILTER (output_tokens IS NULL AND error IS NULL AND NOT cached) AS uncounted,
    CAST(sum(images) AS BIGINT) AS images,
    sum(seconds) AS seconds,
    CASE WHEN bool_and(cached) THEN 0 ELSE sum(cost_usd) FILTER (NOT cached) END AS cost_usd,
    sum(estimated_usd) AS estimated_usd,
    count(*) FILTER (cost_usd IS NULL AND error IS NULL) AS unpriced,
    CAST(NULL AS DOUBLE) AS gpu_hours
FROM model_calls
GROUP BY day, asset, shard, role, backend || '/' || model"""

_TRAININGS = """\
SELECT
    CAST(created_at AT TIME ZONE 'UTC' AS DATE), name, NULL, NULL, version,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    3600 * CAST(json_extract_string(metrics, '$.hours') AS DOUBLE),
    CAST(json_extract_string(metrics, '$.cost_usd') AS DOUBLE),
    NULL,
    CAST(json_extract_string(metrics, '$.cost_usd') IS NULL AS BIGINT),
    CAST(json_extract_string(metrics, '$.gpu_hours') AS DOUBLE)
FROM checkpoints
WHERE source IS NULL AND json_extract_string(metrics, '$.hours') IS NOT NULL"""

_SERVERS = """\
SELECT
    day, 'servers', NULL, NULL, model,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL,
    sum(cost_usd),
    NULL,
    count(*) FILTER (cost_usd IS NULL),
    sum(gpu_hours)
FROM server_hours
GROUP BY day, model"""

SERVER_HOURS = Table("server_hours", ServerHoursRow, key=("run_id", "day"), sharded=True)
COSTS = View(
    "costs",
    CostRow,
    key=("day", "asset", "shard", "role", "model"),
    tables=("model_calls", "checkpoints", "server_hours"),
    sql="\nUNION ALL\n".join((_CALLS, _TRAININGS, _SERVERS)),
    example="SELECT asset, model, sum(cost_usd) AS usd FROM costs GROUP BY ALL ORDER BY usd DESC;",
)
