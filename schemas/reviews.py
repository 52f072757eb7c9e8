"""The table of what people say of attempts."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from .base import Row, Table
from .trajectories import ATTEMPT_KEY

ReviewKind = Literal["verdict", "preference", "prompt"]


class ReviewRow(Row):
    """What a person said of an attempt. Rows are only added: of a reviewer's rows of one kind about
    the same attempt (or pair of attempts), the newest counts, and none if that is withdrawn."""

    review_id: str = Field(description="Id of the review")
    shard: str = Field(description="Shard (Dagster partition) of the prompt")
    prompt_id: str = Field(description="Prompt of the attempt")
    trajectory_id: str = Field(description="Trajectory of the attempt")
    step_number: int = Field(description="Step of the attempt")
    iteration: int = Field(
        description="Iteration of the attempt; of two that are compared, the lower"
    )
    image: str = Field(
        description="sha256 of the image that was reviewed; the review counts as long as it is the "
        "attempt's"
    )
    critic: str = Field(description="Backend and model whose verdict was shown")
    critic_accepted: bool = Field(description="The verdict that was shown")
    reviewer: str = Field(description="Who reviewed, by the name that they gave")
    reviewed_at: datetime = Field(description="When, UTC")
    kind: ReviewKind = Field(
        description="verdict: whether the critic is right; preference: the better of two attempts; "
        "prompt: a better prompt than the critic's"
    )
    agrees: bool | None = Field(
        None, description="verdict: whether the reviewer agrees with the critic"
    )
    accepted: bool | None = Field(
        None, description="verdict: the reviewer's own verdict on the image"
    )
    other_iteration: int | None = Field(
        None, description="preference: the other attempt of the step"
    )
    other_image: str | None = Field(None, description="preference: sha256 of its image")
    better_iteration: int | None = Field(None, description="preference: the better one of the two")
    prompt: str | None = Field(None, description="prompt: what the next image should be made with")
    withdrawn: bool = Field(False, description="True: takes back the review before")


REVIEWS = Table("reviews", ReviewRow, key=("review_id",), sharded=True)

REVIEWED_THING = ("reviewer", "kind", *ATTEMPT_KEY, "other_iteration")
"""Columns that say who reviewed what: of rows with the same values the newest counts."""
