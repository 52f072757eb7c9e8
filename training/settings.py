"""Settings of training: one section per checkpoint, the launcher, when to train again."""

from typing import Annotated

from pydantic import Field, PositiveInt

from schemas.yaml_config import ConfigModel

from .base_model import BaseModelSettings
from .grpo.recipe import CriticGrpoSettings, PlannerGrpoSettings
from .launch.jobs import LauncherSettings
from .sft.recipe import SftSettings
from .tracking import TrackingSettings


class AnswerSettings(ConfigModel):
    """Limits of a trained agent: length of its answers, size of its images."""

    planner_tokens: int = Field(900, ge=1, description="Longest plan in tokens")
    critic_tokens: int = Field(300, ge=1, description="Longest verdict in tokens")
    image_max_pixels: int = Field(96 * 96, ge=1024, description="Larger images are shrunk to this")


Margin = Annotated[float, Field(ge=0)]


class PromotionMargins(ConfigModel):
    """How far below the best ever promoted system a new one may be, by metric.

    A system is promoted if it is shown to be within every margin: a narrow one needs many held-out
    items.
    """

    plan_valid: Margin = Field(0.1, description="Share of plans with the requested form")
    plan_correct: Margin = Field(0.1, description="Share of plans that lead to what was requested")
    verdict_accuracy_true: Margin = Field(0.05, description="Share of good images accepted")
    verdict_accuracy_false: Margin = Field(0.05, description="Share of bad images rejected")
    step_reward: Margin = Field(0.05, description="Mean step reward, -1 to 1")
    final_success: Margin = Field(0.1, description="Share of final images that are right")


Gpus = tuple[Annotated[int, Field(ge=0)], ...]


class TrainingDevices(ConfigModel):
    """GPUs by their numbers; null: the first ones that no server needed meanwhile takes."""

    sft: Gpus | None = Field(None, min_length=1, description="Of supervised fine-tuning")
    rl: Gpus | None = Field(
        None,
        min_length=1,
        description="Of GRPO, whose rewards need the servers of generator and scorer; on GPUs that "
        "those share, it takes the memory that they leave",
    )


class TrainingSettings(ConfigModel):
    """Base model, planner and critic (paper, section 4.1)."""

    base_model: BaseModelSettings = Field(
        BaseModelSettings(), description="The model that planner and critic start from"
    )
    planner_sft: SftSettings = Field(SftSettings(), description="Fine-tuning of the planner")
    critic_sft: SftSettings = Field(SftSettings(), description="Fine-tuning of the critic")
    planner_rl: PlannerGrpoSettings | None = Field(
        None,
        description="Reinforcement of the planner, which the paper has not; null: there is none",
    )
    critic_rl: CriticGrpoSettings = Field(CriticGrpoSettings(), description="GRPO of the critic")
    answers: AnswerSettings = Field(AnswerSettings(), description="Limits of trained agents")
    side_by_side: bool = Field(
        False,
        description="`interleave run` trains planner and critic at the same time, the ablation "
        "its agents of different roles: for a machine that one training leaves half idle",
    )
    launcher: LauncherSettings = Field(LauncherSettings(), description="Where trainers run")
    devices: TrainingDevices = Field(
        TrainingDevices(),
        description="Which GPUs of this machine trainings take; servers on them are stopped",
    )
    promote_at_least: dict[str, float] = Field(
        default_factory=lambda: dict.fromkeys(
            ("plan_valid", "verdict_accuracy_true", "verdict_accuracy_false"), 0.5
        ),
        description="Held-out means below which an agent is not promoted: the service would "
        "get worse than with the profile's own agents",
    )
    promotion_margin: PromotionMargins = Field(
        PromotionMargins(),
        description="How far below the best ever promoted system a new one may be",
    )
    tracking: TrackingSettings = Field(
        TrackingSettings(), description="Where the trainers' curves go, besides Dagster"
    )
    gpu_hour_usd: float | None = Field(
        None, ge=0, description="Price of an hour of one GPU that trains; null: costs are unknown"
    )
    retrain_after_rows: PositiveInt = Field(
        2000, description="New training rows after which `retrain_when_grown` starts a training"
    )

    @property
    def reinforcements(self) -> dict[str, CriticGrpoSettings | PlannerGrpoSettings]:
        """Sections of GRPO by their names, in the order of the pipeline."""
        both: dict[str, CriticGrpoSettings | PlannerGrpoSettings | None] = {
            "planner_rl": self.planner_rl,
            "critic_rl": self.critic_rl,
        }
        return {name: settings for name, settings in both.items() if settings}
