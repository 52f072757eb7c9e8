"""The table of users' requests, through whichever channel they came."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from .base import Row, Table
from .trajectories import OnExhausted

Channel = Literal["asset", "command", "service"]
GenerationStatus = Literal[
    "complete", "exhausted", "stopped", "refused", "failed", "cancelled", "interrupted"
]


class GenerationRow(Row):
    """A run of the loop for a user's request; its attempts are those of `trajectory_id`."""

    generation_id: str = Field(description="Id of the request")
    shard: str = Field(description="Partition: a batch of the asset, or an hour's requests")
    channel: Channel = Field(description="Where it came from: asset, command line or service")
    request_key: str | None = Field(
        description="The client's own identifier: row id of a batch, or idempotency key"
    )
    text: str = Field(description="Text of the request")
    input_images: list[str] = Field(description="sha256 of the images given with the request")
    prompt_id: str = Field(description="Hash of text and images, from which seeds are derived")
    plan_id: str | None = Field(description="Its plan; null: none was written")
    trajectory_id: str = Field(description="Its run of the loop")
    status: GenerationStatus = Field(
        description="As of a trajectory; refused: the request cannot be answered; failed: a model "
        "gave no answer; cancelled: the client disconnected or cancelled; interrupted: the "
        "process was killed"
    )
    error: str | None = Field(description="Why there is no output, in one line")
    planner: str | None = Field(description="Backend and model that planned; null: none did")
    generator: str | None = Field(description="Backend and model of the generator; null: none")
    critic: str | None = Field(description="Backend and model of the critic; null: none")
    t_max: int = Field(description="Attempts allowed per step")
    on_exhausted: OnExhausted = Field(description="Rule applied when T_max is reached")
    conditioning: str = Field(description="Earlier images given to the generator: last or all")
    candidates: int = Field(description="Images generated per attempt")
    seed: int = Field(description="Seed of the request")
    steps: int = Field(description="Steps that were carried out")
    attempts: int = Field(description="Images that were generated and judged")
    wasted_draws: int = Field(description="Images generated before a verdict and not needed")
    images: list[str] = Field(description="sha256 of the accepted images, in order")
    cost_usd: float | None = Field(description="Price of its calls; null: some are not priced")
    seconds: float = Field(description="Wall time; of an interrupted request, that of its calls")
    started_at: datetime = Field(description="Start of the request, UTC")


GENERATIONS = Table("generations", GenerationRow, key=("generation_id",), version=2, sharded=True)
