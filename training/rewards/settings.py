"""Settings of rewards and of the service that computes them."""

from typing import Literal

from pydantic import Field

from inference.settings import Limits
from schemas.yaml_config import ConfigModel

Form = Literal["paper", "code"]
Part = Literal["accuracy", "step"]


class RewardSettings(ConfigModel):
    """The reward of an answer, and the load it puts on generator and scorer."""

    form: Form = Field(
        "paper",
        description="paper: accuracy 0 or -1, step -1 to 1, a drawing for every rejection; code: "
        "both 0 to 1, a drawing for every row whose picture is bad (as the reference's code)",
    )
    alpha: float = Field(
        0.2, ge=0, le=1, description="Weight of accuracy against step in the content half"
    )
    without: tuple[Part, ...] = Field(
        (), max_length=1, description="Ablation: a part that is left out; the other gets its weight"
    )
    seed: int = Field(0, ge=0, description="Seed of every drawing (reference: 0)")
    concurrency: int = Field(4, ge=1, description="Drawings under way at once")
    scorings: int = Field(8, ge=1, description="Scorings under way at once")
    draw_timeout_seconds: float = Field(
        70, gt=0, description="Time for one try to draw, and for one to score (reference: 70)"
    )
    tries: int = Field(2, ge=1, description="Tries of a drawing or scoring whose errors may pass")
    backoff_seconds: float = Field(1.0, ge=0, description="Longest wait before the second try")
    max_failed_share: float = Field(
        0.2, ge=0, le=1, description="Training fails when more of its drawings than this failed"
    )

    @property
    def accuracy_weight(self) -> float:
        """Alpha; 1 or 0 where the other part or this one is left out."""
        if "step" in self.without:
            return 1.0
        return 0.0 if "accuracy" in self.without else self.alpha

    @property
    def limits(self) -> Limits:
        """The same for `RetryingCaller`."""
        return Limits(
            generator=self.concurrency,
            agents=self.scorings,
            call_timeout_seconds=self.draw_timeout_seconds,
            tries=self.tries,
            backoff_seconds=self.backoff_seconds,
        )
