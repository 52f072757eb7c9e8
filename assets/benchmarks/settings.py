"""Settings of benchmarks: which ones a profile runs, on which files, and who judges."""

from pydantic import Field, PositiveInt

from inference.backends.factory import ChatBackend
from inference.backends.providers.settings import BenchmarkJudgeModel
from inference.generation.agent_resolver import Agents
from schemas.yaml_config import ConfigModel


class BenchmarkRunSettings(ConfigModel):
    """One benchmark of a profile."""

    source: str | None = Field(
        None,
        description="Copy of its official files, or id of a data set on the Hub; null: needed by "
        "all but `sketch-*`",
    )
    limit: PositiveInt | None = Field(
        None, description="So many items, evenly from all groups; null: all of them"
    )
    generate: bool = Field(True, description="Whether the profile's own system answers")
    imported: dict[str, str] = Field(
        default_factory=dict,
        description="Other systems -> folder (or file) of their answers in the official layout",
    )
    seed: int = Field(0, description="Of items that are generated, as those of `sketch-*` are")
    difficulty: PositiveInt = Field(1, description="Of items that are generated")


class BenchmarkJudgeSettings(ConfigModel):
    """The model that answers the questions of benchmarks, at the endpoints of a provider."""

    backend: ChatBackend = Field(description="Backend with endpoints and keys")
    model: BenchmarkJudgeModel = Field(description="The model")

    def at(self, temperature: float) -> "BenchmarkJudgeSettings":
        """The judge at a benchmark's own temperature, unless the profile gives another than 0."""
        if self.model.temperature != 0:
            return self
        model = self.model.model_copy(update={"temperature": temperature})
        return self.model_copy(update={"model": model})

    @property
    def name(self) -> str:
        """As in the column `judge`."""
        return f"{self.backend}/{self.model.identity}"


class BenchmarksSettings(ConfigModel):
    """Benchmarks of the field: `interleave evaluate`, and the assets of group benchmarks."""

    run: dict[str, BenchmarkRunSettings] = Field(
        default_factory=dict, description="Benchmark -> its files and items"
    )
    judge: BenchmarkJudgeSettings | None = Field(
        None, description="null: only benchmarks whose answers are judged exactly (`sketch-*`)"
    )
    agents: Agents = Field(
        "auto",
        description="Planner and critic: the promoted checkpoints, the profile's own agents, or "
        "(auto) promoted ones where both exist",
    )
    shard_size: PositiveInt = Field(50, description="Items in a Dagster partition")
    seed: int = Field(0, description="From which the seed of every item follows")
    tries: PositiveInt = Field(
        2, description="How often a judge is asked until its answer can be read"
    )
    resamples: int = Field(1000, ge=100, description="Bootstrap resamples per interval")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Probability of the intervals")
