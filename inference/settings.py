"""Settings of the loop and of model calls."""

from typing import Literal

from pydantic import Field

from schemas.trajectories import OnExhausted
from schemas.yaml_config import ConfigModel

Conditioning = Literal["last", "all"]


class LoopSettings(ConfigModel):
    """Rules of the planner-critic loop; all of them enter the ids of trajectories."""

    t_max: int = Field(5, ge=1, le=100, description="Attempts allowed per step (paper: 5)")
    on_exhausted: OnExhausted = Field(
        "last",
        description="After T_max rejections: continue with the last image, as the reference does; "
        "with the best one, as the scorer ranks them; or stop",
    )
    conditioning: Conditioning = Field(
        "last",
        # Added later than the other settings: trajectories made before it keep their ids.
        exclude_if=lambda value: value == "last",
        description="The generator's input: the last image of the trajectory alone; or all of "
        "them, input images included, the last one last. `all` needs a generator that takes "
        "several images; it gets the newest of them, as many as it takes",
    )
    seed: int = Field(0, description="The seeds of all draws are derived from it")
    max_steps: int = Field(50, ge=1, description="A plan with more steps is quarantined")


class Limits(ConfigModel):
    """Concurrency, and when to give up on a call or a shard."""

    generator: int = Field(
        4,
        ge=1,
        description="Concurrent generator calls; a few more than a server has slots keep it busy",
    )
    agents: int = Field(8, ge=1, description="Concurrent planner, critic and scorer calls")
    trajectories_in_flight: int | None = Field(
        None, ge=1, description="Concurrent trajectories; null: enough to keep both pools busy"
    )
    call_timeout_seconds: float = Field(300, gt=0, description="Time for one try of a call")
    tries: int = Field(3, ge=1, description="Tries of a call whose errors are transient")
    backoff_seconds: float = Field(
        1.0, ge=0, description="Longest wait before the first retry; doubles per retry, to 60 s"
    )
    failure_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="A shard fails when a larger share of its prompts is quarantined",
    )

    @property
    def in_flight(self) -> int:
        """Concurrent trajectories: every slot of both pools taken, and draws waiting for one."""
        return self.trajectories_in_flight or 2 * self.generator + self.agents
