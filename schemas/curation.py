"""Tables of training data: steps, critic and planner sets, sequences, rows of other people."""

from typing import Literal

from pydantic import Field

from .base import ForeignKey, Row, Table
from .prompts import TO_PROMPT
from .trajectories import TO_ATTEMPT, TO_TRAJECTORY

TrainSplit = Literal["sft", "rl"]
ImportKind = Literal["planner_sft", "critic_sft", "critic_rl"]
_TO_STEP = ForeignKey(("trajectory_id", "step_number"), "steps", ("trajectory_id", "step_number"))


class ChatMessageRow(Row):
    """A chat turn."""

    role: str = Field(description="user or assistant")
    content: str = Field(description="Text; every <image> stands for one of the row's images")


class Evaluation(Row):
    """Ground truth of a critic RL row, as the reward reads it."""

    success: bool = Field(description="Whether the edited image fulfils the instruction")
    semantics: float = Field(description="0-10, of the edited image")
    quality: float = Field(description="0-10, of the edited image")


class StepRow(Row):
    """A step with its attempts after filtering: the unit that filters and splits work on."""

    trajectory_id: str = Field(description="Trajectory of the step")
    prompt_id: str = Field(description="Prompt of the trajectory")
    shard: str = Field(description="Shard of the prompt")
    step_number: int = Field(description="Plan step")
    iterations: int = Field(description="Attempts made")
    best_iteration: int = Field(description="First iteration with the highest overall score")
    first_overall: float = Field(description="Overall score of iteration 0")
    best_overall: float = Field(description="Highest overall score")
    variance: float = Field(description="Population variance of scores up to the best iteration")
    kept: bool = Field(description="False when a filter rule dropped it")
    drop_reason: str | None = Field(description="Name of the rule that dropped it")
    split: TrainSplit | None = Field(
        description="sft: variance of its prompt (by default the mean over kept steps) at most θ; "
        "rl: above; the same for all steps of a prompt (with `curation.split.unit: step`: by the "
        "step's own variance); null: dropped, or of a held-out prompt"
    )


class _CriticRow(Row):
    row_id: str = Field(description="Id of the row")
    prompt_id: str = Field(description="Prompt it came from")
    trajectory_id: str = Field(description="Trajectory it came from")
    step_number: int = Field(description="Step it came from")
    iteration: int = Field(description="Iteration it came from")
    copy_number: int = Field(description="0; above 0 for copies made by balancing")
    decided_by: Literal["person"] | None = Field(
        None,
        description="person: the verdict or the next prompt is that of people (table `reviews`); "
        "null: the critic's or the scores'",
    )


class CriticSftRow(_CriticRow):
    """A critic SFT sample: two images, the instruction, and the verdict to learn."""

    accepted: bool = Field(description="The verdict to learn")
    messages: list[ChatMessageRow] = Field(description="User turn and assistant turn")
    images: list[str] = Field(description="sha256 of before (or the white canvas) and after")
    agent_prompt_version: str = Field(description="Name and version of the agent prompt")


class CriticRlRow(_CriticRow):
    """A critic RL prompt: the input that verdicts are sampled for, and its ground truth."""

    origin_prompt: str = Field(description="The plan's prompt for the step")
    rewritten_prompt: str = Field(description="Prompt of the edited image; empty at iteration 0")
    origin_image: str = Field(description="sha256 of the image before (or the white canvas)")
    edited_image: str = Field(description="sha256 of the image after")
    evaluation: Evaluation = Field(description="Ground truth of the edited image")
    messages: list[ChatMessageRow] = Field(description="The user turn that the policy answers")
    agent_prompt_version: str = Field(description="Name and version of the agent prompt")


class CriticDpoRow(Row):
    """Two answers of a critic, of which people or scores prefer one. They have no reasoning: people
    give none, and a pair must differ in nothing else."""

    row_id: str = Field(description="Id of the row")
    prompt_id: str = Field(description="Prompt it came from")
    trajectory_id: str = Field(description="Trajectory it came from")
    step_number: int = Field(description="Step it came from")
    iteration: int = Field(description="Iteration of the attempt that is judged")
    source: Literal["verdict", "prompt", "preference", "score_verdict", "score_prompt"] = Field(
        description="verdict: people's verdict and the critic's; prompt: a person's next prompt "
        "and the critic's; preference: accepting an attempt, and the prompt of a later one, by "
        "which image is better; score_verdict: accepting an attempt, and the critic's rejection, "
        "by its score; score_prompt: two refinements of a step, by the scores of their images"
    )
    messages: list[ChatMessageRow] = Field(description="The user turn")
    chosen: ChatMessageRow = Field(description="The assistant turn that is preferred")
    rejected: ChatMessageRow = Field(description="The other one")
    images: list[str] = Field(description="sha256 of before (or the white canvas) and after")
    agent_prompt_version: str = Field(description="Name and version of the agent prompt")


class PlannerSftRow(Row):
    """A planner SFT sample: a request (perhaps with images so far) and the plan to learn."""

    row_id: str = Field(description="Id of the row")
    source: Literal["plan", "continuation", "comm", "comm_continuation"] = Field(
        description="plan: request to complete plan; continuation: first steps with their images; "
        "comm: the texts of an imported document's images; comm_continuation: first steps of an "
        "imported document with their images"
    )
    prompt_id: str | None = Field(description="Prompt it came from; null for imported data")
    plan_id: str | None = Field(description="Plan it came from; null for imported data")
    trajectory_id: str | None = Field(description="Trajectory of its images, if any")
    cut: int = Field(description="Steps given as input; 0 for complete plans")
    messages: list[ChatMessageRow] = Field(description="User turn and assistant turn")
    images: list[str] = Field(description="sha256 of the images in the user turn")
    agent_prompt_version: str = Field(description="Name and version of the agent prompt")


class PlannerRlRow(Row):
    """A request that plans are sampled for in GRPO of the planner."""

    row_id: str = Field(description="Id of the row: the prompt's")
    prompt_id: str = Field(description="Prompt it came from, of a shard without trajectories")
    request: str = Field(description="The request, as the grader of plans reads it")
    messages: list[ChatMessageRow] = Field(description="The user turn that the policy answers")
    images: list[str] = Field(description="sha256 of the request's images")
    agent_prompt_version: str = Field(description="Name and version of the agent prompt")


class SequenceRow(Row):
    """An accepted trajectory as one interleaved sequence, to train unified models."""

    row_id: str = Field(description="Id of the row")
    prompt_id: str = Field(description="Prompt of the trajectory")
    trajectory_id: str = Field(description="Trajectory it came from")
    form: Literal["easy", "reflection"] = Field(
        description="easy: accepted images only; reflection: every attempt with its verdict"
    )
    messages: list[ChatMessageRow] = Field(description="User turn and assistant turn")
    images: list[str] = Field(description="sha256 of the images, in order of appearance")


class ImportedRow(Row):
    """A training row of an imported file, with its origin."""

    row_id: str = Field(description="Import and number in the file: NAME:NUMBER")
    name: str = Field(description="Name of the import: the partition of its rows")
    kind: ImportKind = Field(description="The training set that it is a row of")
    number: int = Field(description="Position in the file, 1-based")
    source: str = Field(description="File, or repository of the Hub with commit and file")
    file_sha256: str = Field(description="Hash of the file")
    licence: str = Field(description="Licence of the data, as the importer named it")
    messages: list[ChatMessageRow] = Field(
        description="User turn and assistant turn; empty for critic_rl, whose user turn follows "
        "from the agent prompt of the profile"
    )
    images: list[str] = Field(description="sha256 of the images, in order of their placeholders")
    origin_prompt: str | None = Field(description="critic_rl: the plan's prompt for the step")
    rewritten_prompt: str | None = Field(
        description="critic_rl: the prompt of the edited image; empty at iteration 0"
    )
    evaluation: Evaluation | None = Field(description="critic_rl: ground truth of the edited image")


STEPS = Table(
    "steps", StepRow, key=("trajectory_id", "step_number"), references=(TO_PROMPT, TO_TRAJECTORY)
)
CRITIC_SFT = Table(
    "critic_sft",
    CriticSftRow,
    key=("row_id",),
    version=2,
    references=(TO_PROMPT, _TO_STEP, TO_ATTEMPT),
)
CRITIC_RL = Table(
    "critic_rl",
    CriticRlRow,
    key=("row_id",),
    version=2,
    references=(TO_PROMPT, _TO_STEP, TO_ATTEMPT),
)
CRITIC_DPO = Table("critic_dpo", CriticDpoRow, key=("row_id",), references=(TO_PROMPT, TO_ATTEMPT))
PLANNER_SFT = Table("planner_sft", PlannerSftRow, key=("row_id",), references=(TO_PROMPT,))
PLANNER_RL = Table("planner_rl", PlannerRlRow, key=("row_id",), references=(TO_PROMPT,))
SEQUENCES = Table("sequences", SequenceRow, key=("row_id",), references=(TO_PROMPT,))
IMPORTS = Table("imports", ImportedRow, key=("row_id",), sharded=True)
