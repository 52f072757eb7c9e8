"""Which requests the asset `generations` answers."""

from typing import Self

from pydantic import Field, model_validator

from inference.generation.agent_resolver import Agents
from schemas.yaml_config import ConfigModel


class GenerationsSettings(ConfigModel):
    """Requests from a file or from a query, told batch by batch.

    Columns: `text`; where wanted `id` (a name of the requester's own), `images` (paths relative to
    the file, addresses, or sha256 of pictures in the lake), `critic` (rl or sft), and the rules of
    the loop (`t_max`, `seed`, ...), which are those of section loop where a row has none.
    """

    requests: str | None = Field(
        None, description="Path or address of a .jsonl, .csv or .parquet file; it may grow"
    )
    query: str | None = Field(
        None, description="Instead of a file: SQL over the tables of the lake, in a fixed order"
    )
    name: str = Field(
        "requests",
        pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
        description="Begins the names of the batches; another one for other requests",
    )
    batch_size: int = Field(100, ge=1, description="Requests in a batch (Dagster partition)")
    agents: Agents = Field(
        "auto",
        description="Who plans and judges: the promoted checkpoints, the profile's own agents, or "
        "(auto) promoted ones where there are both",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.requests is None) == (self.query is None):
            raise ValueError("give either `requests` or `query`")
        return self
