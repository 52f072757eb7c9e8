"""The GPUs that model servers held, and the view of what models, servers and trainings cost.

A sum over measurements of which some are missing has only those that are there; columns beside it
count the missing ones. A sum without any is null, never 0.
"""

from datetime import date, datetime

from pydantic import Field

from .base import Row, Table, View


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

    day: date = Field(
        description="Day on which the calls began, the training ended, or the server ran, UTC"
    )
    asset: str = Field(
        description="Asset (or service) that made the calls, or was trained; `servers`: those "
        "that the profile names, which all assets share"
    )
    shard: str | None = Field(description="Shard of the prompts; null: a training or server")
    role: str | None = Field(description="Role of the model; null: a training or server")
    model: str = Field(
        description="Backend and model, as in `attempts`; of a training, the checkpoint's version"
    )
    calls: int | None = Field(
        description="Model calls, with those below; null: a training or server"
    )
    cached: int | None = Field(description="Calls answered from another asset's journal, for free")
    failed: int | None = Field(description="Calls that ended in an error")
    retries: int | None = Field(description="Retries of all calls after their first try")
    input_tokens: int | None = Field(description="Prompt tokens; null: none were counted")
    output_tokens: int | None = Field(description="Completion tokens, likewise")
    uncounted: int | None = Field(
        description="Answered calls without a number of tokens: not in the sums of tokens"
    )
    images: int | None = Field(description="Images sent and received")
    seconds: float | None = Field(
        description="Wall time of all calls, one after the other, or of the trainers"
    )
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
