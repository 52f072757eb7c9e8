"""Settings of the asset `generations`: where its requests come from."""

from typing import Self

from pydantic import Field, model_validator

from inference.generation.agent_resolver import Agents
from schemas.yaml_config import ConfigModel


class GenerationsSettings(ConfigModel):
    """Requests from a file or from a query, run batch by batch.

    Columns: `text`; optionally `id` (the client's own name), `images` (paths relative to the file,
    URLs, or sha256 of images in the lake), `critic` (rl or sft), and options of the loop (`t_max`,
    `seed`, ...), by default those of section loop.
    """

    requests: str | None = Field(
        None, description="Path or URL of a .jsonl, .csv or .parquet file; it may grow"
    )
    query: str | None = Field(
        None, description="Instead of a file: SQL over the tables of the lake, in a fixed order"
    )
    name: str = Field(
        "requests",
        pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
        description="Prefix of the batches' names; another one for other requests",
    )
    batch_size: int = Field(100, ge=1, description="Requests in a batch (Dagster partition)")
    agents: Agents = Field(
        "auto",
        description="Planner and critic: the promoted checkpoints, the profile's own agents, or "
        "(auto) promoted ones where both exist",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.requests is None) == (self.query is None):
            raise ValueError("give either `requests` or `query`")
        return self
