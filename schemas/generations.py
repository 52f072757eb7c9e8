"""Table of what users asked for: a row a request, whichever door it came through."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from .base import Row, Table
from .trajectories import OnExhausted

Door = Literal["asset", "command", "service"]
GenerationStatus = Literal[
    "complete", "exhausted", "stopped", "refused", "failed", "cancelled", "interrupted"
]


class GenerationRow(Row):
    """A run of the loop for a user's request; its attempts are those of `trajectory_id`."""

    generation_id: str = Field(description="Id of the request")
    shard: str = Field(
        description="Partition of this row: a batch of the asset, or one of requests as they came"
    )
    door: Door = Field(description="How it came: the asset, the command line, the service")
    request_key: str | None = Field(
        description="The requester's own name for it: id of a row, idempotency key"
    )
    text: str = Field(description="What was asked for")
    input_images: list[str] = Field(description="sha256 of the pictures given with it")
    prompt_id: str = Field(description="Hash of text and pictures, from which seeds follow")
    plan_id: str | None = Field(description="Its plan; null: there is none")
    trajectory_id: str = Field(description="Its run of the loop")
    status: GenerationStatus = Field(
        description="As of a trajectory; refused: the request cannot be answered; failed: a model "
        "gave no answer; cancelled: nobody waited any more; interrupted: the process was killed"
    )
    error: str | None = Field(description="Why there is no story, in one line")
    planner: str | None = Field(description="Backend and model that planned; null: none did")
    generator: str | None = Field(description="Backend and model that drew; null: none did")
    critic: str | None = Field(description="Backend and model that judged; null: none did")
    t_max: int = Field(description="Attempts allowed per step")
    on_exhausted: OnExhausted = Field(description="Rule applied when T_max is reached")
    conditioning: str = Field(description="What the generator was shown: last or all")
    candidates: int = Field(description="Pictures drawn per attempt")
    seed: int = Field(description="Seed of the request")
    steps: int = Field(description="Steps that were carried out")
    attempts: int = Field(description="Pictures that were drawn and judged")
    wasted_draws: int = Field(description="Pictures drawn ahead of a verdict and not needed")
    images: list[str] = Field(description="sha256 of the story's pictures, in order")
    cost_usd: float | None = Field(description="Price of its calls; null: some are not priced")
    seconds: float = Field(
        description="Wall time from the request to its end; of one that was interrupted, its calls'"
    )
    started_at: datetime = Field(description="When it began, UTC")


GENERATIONS = Table("generations", GenerationRow, key=("generation_id",), sharded=True)
