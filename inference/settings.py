"""What may be set about the loop and about how models are called."""

from typing import Literal

from pydantic import Field

from schemas.trajectories import OnExhausted
from schemas.yaml_config import ConfigModel


class LoopSettings(ConfigModel):
    """Rules of the planner-critic loop; every one of them enters the ids of trajectories."""

    t_max: int = Field(5, ge=1, le=100, description="Attempts allowed per step (paper: 5)")
    on_exhausted: OnExhausted = Field(
        "last",
        description="After T_max rejections: go on with the last picture, as the reference does; "
        "with the best one, as the scorer ranks them; or stop the story",
    )
    conditioning: Literal["last", "all"] = Field(
        "last",
        # Its rules are older than this one: what was told without it keeps its id.
        exclude_if=lambda value: value == "last",
        description="What the generator is shown: the last picture of the story alone; or all, "
        "input pictures included, the last one last. `all` needs a generator that looks at several "
        "pictures; it is shown the newest of them, as many as it takes",
    )
    seed: int = Field(0, description="Every draw's seed is derived from it")
    max_steps: int = Field(50, ge=1, description="A plan with more steps is set aside as an error")


class Limits(ConfigModel):
    """How hard models are worked, and when to give up on a call or a shard."""

    generator: int = Field(
        4,
        ge=1,
        description="Draws under way at once; a few more than a server has slots keep it busy",
    )
    agents: int = Field(8, ge=1, description="Planner, critic and scorer calls under way at once")
    trajectories_in_flight: int | None = Field(
        None, ge=1, description="Stories told at once; null: enough to keep both pools busy"
    )
    call_timeout_seconds: float = Field(300, gt=0, description="Time for one try of a call")
    tries: int = Field(3, ge=1, description="Tries of a call whose errors may pass")
    backoff_seconds: float = Field(
        1.0, ge=0, description="Longest wait before the first retry; doubles per retry, to 60 s"
    )
    failure_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="A shard fails when more of its prompts than this are set aside",
    )

    @property
    def in_flight(self) -> int:
        """Stories told at once: every slot of both pools taken, and draws waiting for a slot."""
        return self.trajectories_in_flight or 2 * self.generator + self.agents
