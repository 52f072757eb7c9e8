"""Tables of benchmarks: answers, a judge's answers to questions about them, metrics, results."""

from datetime import datetime

from pydantic import Field

from .base import Row, Table


class BenchmarkAnswerRow(Row):
    """A system's answer to an item of a benchmark."""

    benchmark: str = Field(description="Benchmark with its version, such as wise-legacy")
    system: str = Field(description="Who answered: a name that the user chose, or the profile's")
    shard: str = Field(description="Partition: benchmark, system and number")
    item_id: str = Field(description="The benchmark's own id of the item")
    group: str = Field(description="Task or category whose numbers are reported by themselves")
    request: str = Field(description="Text of the item, as the system got it")
    input_images: list[str] = Field(description="sha256 of the images given with it")
    texts: list[str] = Field(description="The text of every step; empty where it has none")
    images: list[str | None] = Field(description="sha256 of the image of every step; null: none")
    status: str = Field(
        description="As of a generation; imported: another system's answer; missing: it has none"
    )
    generation_id: str | None = Field(description="Its generation; null: an imported answer")
    seed: int | None = Field(description="Seed of the item; null: an imported answer")
    cost_usd: float | None = Field(description="Price of its calls; null: not known")
    seconds: float | None = Field(description="Time that its calls took; null: not known")


class JudgementRow(Row):
    """What a judge said to one question about an answer."""

    benchmark: str = Field(description="Benchmark")
    system: str = Field(description="Who answered")
    judge: str = Field(description="Backend and model (with a hash of its settings) that judged")
    shard: str = Field(description="Partition of the answer")
    item_id: str = Field(description="Item")
    call: str = Field(description="What was asked, such as reasoning or text-3")
    value: str | None = Field(description="What it said, as JSON; null: it could not be read")
    answer: str | None = Field(description="Its words; null: it gave none, or counted exactly")
    tries: int = Field(description="How often it was asked")
    error: str | None = Field(description="Why there is no answer")


class BenchmarkScoreRow(Row):
    """A metric of one item."""

    benchmark: str = Field(description="Benchmark")
    system: str = Field(description="Who answered")
    judge: str = Field(description="Who judged")
    item_id: str = Field(description="Item")
    group: str = Field(description="Task or category of the item")
    metric: str = Field(description="Metric; step-N: quality of step N, where steps are judged")
    value: float | None = Field(description="Value; null: unscored, no answer could be read")


class BenchmarkResultRow(Row):
    """A number of the official summary, with its interval."""

    benchmark: str = Field(description="Benchmark")
    system: str = Field(description="Who answered")
    judge: str = Field(description="Who judged")
    metric: str = Field(description="Number, such as overall or time/accuracy")
    headline: bool = Field(description="Whether systems are ranked by it")
    value: float | None = Field(description="Value; null: no item has it")
    low: float | None = Field(description="Lower end of the bootstrap interval over items")
    high: float | None = Field(description="Upper end")
    confidence: float = Field(description="Probability of the interval")
    items: int = Field(description="Items of the run that were answered and judged")
    unscored: float = Field(description="Share of those items for which a metric is missing")
    of_items: int = Field(description="Items that the benchmark has")
    evaluated_at: datetime = Field(description="When it was computed, UTC")


_RUN = ("benchmark", "system")
BENCHMARK_ANSWERS = Table(
    "benchmark_answers", BenchmarkAnswerRow, key=(*_RUN, "item_id"), sharded=True
)
JUDGEMENTS = Table(
    "benchmark_judgements", JudgementRow, key=(*_RUN, "judge", "item_id", "call"), sharded=True
)
BENCHMARK_SCORES = Table(
    "benchmark_scores", BenchmarkScoreRow, key=(*_RUN, "judge", "item_id", "metric"), sharded=True
)
BENCHMARK_RESULTS = Table(
    "benchmark_results", BenchmarkResultRow, key=(*_RUN, "judge", "metric"), sharded=True
)
