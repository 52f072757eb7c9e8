"""Numbers of the paper beside ours."""

from functools import cache
from pathlib import Path

from pydantic import Field, TypeAdapter

from schemas.yaml_config import ConfigModel, load_document


class PublishedTable(ConfigModel):
    """A benchmark's table: system -> metric -> value, in the unit of our results."""

    source: str = Field(description="Where it is printed")
    systems: dict[str, dict[str, float]] = Field(description="As printed")
    recomputed: dict[str, dict[str, float]] = Field(
        default_factory=dict,
        description="Averages that follow from the cells, where printed ones do not",
    )


class _Document(ConfigModel, extra="allow"):
    """Benchmark -> its table."""


@cache
def published_table(benchmark: str) -> PublishedTable | None:
    """The paper's table of a benchmark; None: it has none."""
    document = load_document(Path(__file__).with_name("published.yaml"), _Document)
    tables = TypeAdapter(dict[str, PublishedTable]).validate_python(document.model_extra or {})
    return tables.get(benchmark)
