"""Tables of training: checkpoints, rollouts of reinforcement learning, evaluations."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from .base import Row, Table
from .prompts import TO_PROMPT

# Names of the checkpoints of the lineage. Planner and critic serve together.
BASE_MODEL = "base_model"
PLANNER, RL_PLANNER = "planner_sft_checkpoint", "planner_rl_checkpoint"
SFT_CRITIC, CRITIC = "critic_sft_checkpoint", "critic_rl_checkpoint"
CriterionKind = Literal["image", "text"]
CheckpointStatus = Literal["candidate", "promoted", "rejected"]
RolloutStatus = Literal["scored", "malformed", "masked"]


class CheckpointRow(Row):
    """A trained model: its parent, data set, metrics and status."""

    name: str = Field(description="base_model, planner_sft_checkpoint, ...")
    version: str = Field(description="Hash of parent, data set and settings; name of its folder")
    parent: str | None = Field(description="name/version of the checkpoint it was trained from")
    dataset_version: str | None = Field(description="Content hash of the training rows")
    config_hash: str = Field(description="Hash of the rendered trainer configuration")
    metrics: str = Field(description="Final metrics of training, a JSON object of numbers")
    status: CheckpointStatus = Field(
        description="candidate: trained; promoted: in use; rejected: worse than the promoted one"
    )
    uri: str = Field(description="Folder in Hugging Face format, with a model card")
    created_at: datetime = Field(description="When training ended, UTC")
    source: str | None = Field(
        None, description="Repository of the Hub and its commit, if it was pulled; null: trained"
    )


class RolloutRow(Row):
    """A response sampled in reinforcement learning, with the parts of its reward."""

    rollout_id: str = Field(description="Id of the rollout: run, step, group and number in it")
    run: str = Field(description="Version of the checkpoint that was being trained")
    step: int = Field(description="Training step, 1-based")
    row_id: str = Field(description="Row of critic_rl or planner_rl that was the prompt: its group")
    response: str = Field(
        description="Response of the policy; of an episode all of them, with an empty line between"
    )
    status: RolloutStatus = Field(
        description="scored: all parts known; malformed: only the format part counts; masked: an "
        "image or a grade failed or timed out, so the sample is excluded from its group"
    )
    verdict: bool | None = Field(description="A critic's verdict; null: malformed, or a plan")
    refined_prompt: str | None = Field(description="A critic's prompt; null: malformed, or a plan")
    truth: bool | None = Field(description="The correct verdict; null: of a plan")
    image: str | None = Field(
        description="sha256 of the first image from its prompt, or of the last one of a plan or "
        "a trajectory; null: none"
    )
    format: float = Field(description="Format part")
    accuracy: float | None = Field(
        description="Accuracy part: of the verdict, or whether the plan is right; null: malformed "
        "or masked"
    )
    step_reward: float | None = Field(
        description="A critic's step part, by the next image or the end of the trajectory; null: "
        "malformed, masked or excluded, or a plan"
    )
    reward: float | None = Field(description="Total reward; null: masked")
    seconds: float = Field(description="Wall time of generation and scoring")
    error: str | None = Field(description="Why it was masked")
    generator: str | None = Field(
        None, description="Backend and model that was asked to draw its prompt; null: none"
    )


class EvaluationRow(Row):
    """A metric of one item of a benchmark, for one variant of the system."""

    benchmark: str = Field(description="Benchmark, such as sketchbook-heldout-dev")
    variant: str = Field(description="Variant evaluated: full_rl, planner_sft, generator_only ...")
    item_id: str = Field(description="Item of the benchmark: a prompt, an attempt")
    metric: str = Field(description="Metric, such as plan_valid or final_success")
    value: float = Field(description="Value; 0 or 1 for a yes-or-no metric")
    planner: str = Field(description="Backend and model (checkpoint version) that planned")
    critic: str = Field(description="Backend and model (checkpoint version) that judged")
    prompt_id: str | None = Field(
        None, description="Request that the item belongs to; null: written before it was stored"
    )
    training_seed: int | None = Field(
        None,
        description="Of the ablation: what was added to the seeds of all trainings; null: the "
        "asset evaluation, of the profile's own trainings",
    )


class RubricRow(Row):
    """A criterion, answered by yes or no, that the outcome of a held-out request must meet."""

    prompt_id: str = Field(description="The request")
    rubric_version: str = Field(description="Hash of the request's criteria, the same on all")
    kind: CriterionKind = Field(description="image: of the images; text: of the texts")
    number: int = Field(description="1-based, among the criteria of its kind")
    criterion: str = Field(description="The criterion")
    image_count: int | None = Field(description="Images that the request asks for; null: any")
    writer: str = Field(description="Backend and model that wrote it")


class ReportedRecipeRow(Row):
    """A recipe whose numbers on test items were reported: its settings are chosen."""

    name: str = Field(description="Name of the checkpoint")
    version: str = Field(description="Version whose numbers were reported")
    settings_hash: str = Field(description="Hash of its settings and its parents', without data")
    reported_at: datetime = Field(description="When they were first reported, UTC")


CHECKPOINTS = Table("checkpoints", CheckpointRow, key=("name", "version"), version=2, sharded=True)
ROLLOUTS = Table("rollouts", RolloutRow, key=("rollout_id",), version=2, sharded=True)
RUBRICS = Table("rubrics", RubricRow, key=("prompt_id", "kind", "number"), references=(TO_PROMPT,))
REPORTED_RECIPES = Table(
    "reported_recipes", ReportedRecipeRow, key=("name", "version"), sharded=True
)
EVALUATIONS = Table(
    "evaluations",
    EvaluationRow,
    key=("benchmark", "variant", "training_seed", "metric", "item_id"),
    version=2,
    sharded=True,
)
