"""Tables of curated training data: steps, critic and planner sets, sequences."""

from typing import Literal

from pydantic import Field

from .base import ForeignKey, Row, Table
from .prompts import TO_PROMPT
from .trajectories import TO_ATTEMPT, TO_TRAJECTORY

TrainSplit = Literal["sft", "rl"]
_TO_STEP = ForeignKey(("trajectory_id", "step_number"), "steps", ("trajectory_id", "step_number"))


class ChatMessageRow(Row):
    """A chat turn."""

    role: str = Field(description="user or assistant")
    content: str = Field(description="Text; every <image> stands for one of the row's images")


class Evaluation(Row):
    """Ground truth of a critic RL row, as the reward reads it."""

    success: bool = Field(description="Whether the edited picture fulfils the instruction")
    semantics: float = Field(description="0-10, of the edited picture")
    quality: float = Field(description="0-10, of the edited picture")


class StepRow(Row):
    """A step's chain of attempts after filtering: the unit that is kept, dropped and split."""

    trajectory_id: str = Field(description="Trajectory of the step")
    prompt_id: str = Field(description="Prompt of the trajectory")
    shard: str = Field(description="Shard of the prompt")
    step_number: int = Field(description="Plan step")
    iterations: int = Field(description="Attempts made")
    best_iteration: int = Field(description="First iteration with the highest overall score")
    first_overall: float = Field(description="Overall score of iteration 0")
    best_overall: float = Field(description="Highest overall score")
    variance: float = Field(
        description="Population variance of the overall scores up to the best iteration"
    )
    kept: bool = Field(description="False when a filter rule dropped it")
    drop_reason: str | None = Field(description="Name of the rule that dropped it")
    split: TrainSplit | None = Field(
        description="sft (its prompt's variance, by default the mean over kept steps, at most θ) "
        "or rl (above), so that a prompt is on one side; null: dropped or of a held-out prompt"
    )


class CriticSftRow(Row):
    """A critic SFT sample: two pictures, what was asked, the verdict to give."""

    row_id: str = Field(description="Id of the row")
    prompt_id: str = Field(description="Prompt it came from")
    trajectory_id: str = Field(description="Trajectory it came from")
    step_number: int = Field(description="Step it came from")
    iteration: int = Field(description="Iteration it came from")
    copy_number: int = Field(description="0; above 0 for copies made by balancing")
    accepted: bool = Field(description="The verdict to learn")
    messages: list[ChatMessageRow] = Field(description="User turn and assistant turn")
    images: list[str] = Field(description="sha256 of before (or the white canvas) and after")
    agent_prompt_version: str = Field(description="Name and version of the agent prompt")


class CriticRlRow(Row):
    """A critic RL prompt: the state a verdict is sampled from, and its ground truth."""

    row_id: str = Field(description="Id of the row")
    prompt_id: str = Field(description="Prompt it came from")
    trajectory_id: str = Field(description="Trajectory it came from")
    step_number: int = Field(description="Step it came from")
    iteration: int = Field(description="Iteration it came from")
    copy_number: int = Field(description="0; above 0 for copies made by balancing")
    origin_prompt: str = Field(description="The plan's prompt for the step")
    rewritten_prompt: str = Field(
        description="The prompt that made the edited picture; empty at iteration 0"
    )
    origin_image: str = Field(description="sha256 of the picture before (or the white canvas)")
    edited_image: str = Field(description="sha256 of the picture after")
    evaluation: Evaluation = Field(description="Ground truth of the edited picture")
    messages: list[ChatMessageRow] = Field(description="The user turn the policy answers")
    agent_prompt_version: str = Field(description="Name and version of the agent prompt")


class PlannerSftRow(Row):
    """A planner SFT sample: a request (maybe with the pictures so far) and the plan to write."""

    row_id: str = Field(description="Id of the row")
    source: Literal["plan", "continuation", "comm"] = Field(
        description="plan: request to whole plan; continuation: cut plan with its pictures; "
        "comm: imported interleaved data"
    )
    prompt_id: str | None = Field(description="Prompt it came from; null for imported data")
    plan_id: str | None = Field(description="Plan it came from; null for imported data")
    trajectory_id: str | None = Field(description="Trajectory whose pictures it shows, if any")
    cut: int = Field(description="Steps given as input; 0 for whole plans")
    messages: list[ChatMessageRow] = Field(description="User turn and assistant turn")
    images: list[str] = Field(description="sha256 of the pictures in the user turn")
    agent_prompt_version: str = Field(description="Name and version of the agent prompt")


class SequenceRow(Row):
    """A whole story as one interleaved sequence, for training unified models."""

    row_id: str = Field(description="Id of the row")
    prompt_id: str = Field(description="Prompt it tells")
    trajectory_id: str = Field(description="Trajectory it came from")
    form: Literal["easy", "reflection"] = Field(
        description="easy: accepted pictures only; reflection: every attempt with its verdict"
    )
    messages: list[ChatMessageRow] = Field(description="User turn and assistant turn")
    images: list[str] = Field(description="sha256 of the pictures, in order of appearance")


STEPS = Table(
    "steps",
    StepRow,
    key=("trajectory_id", "step_number"),
    references=(TO_PROMPT, TO_TRAJECTORY),
)
CRITIC_SFT = Table(
    "critic_sft", CriticSftRow, key=("row_id",), references=(TO_PROMPT, _TO_STEP, TO_ATTEMPT)
)
CRITIC_RL = Table(
    "critic_rl", CriticRlRow, key=("row_id",), references=(TO_PROMPT, _TO_STEP, TO_ATTEMPT)
)
PLANNER_SFT = Table("planner_sft", PlannerSftRow, key=("row_id",), references=(TO_PROMPT,))
SEQUENCES = Table("sequences", SequenceRow, key=("row_id",), references=(TO_PROMPT,))
