"""Tables of the planner-critic loop: plans, trajectories, attempts, scores, calls, quarantine."""

from datetime import datetime
from typing import Literal, get_args

from pydantic import Field

from .base import ForeignKey, Row, Table
from .prompts import TO_PROMPT

LoopRole = Literal["planner", "generator", "critic", "scorer"]
LOOP_ROLES: tuple[LoopRole, ...] = get_args(LoopRole)
# The roles of the loop, and who proposes terms for vocabulary banks.
Role = Literal[LoopRole, "expander"]
TrajectoryStatus = Literal["complete", "exhausted", "stopped", "quarantined"]
OnExhausted = Literal["last", "best", "stop"]

GRADES = (
    "edit_success",
    "over_edit",
    "naturalness",
    "artifacts",
    "semantics",
    "quality",
    "overall",
)
"""Columns of a score, each 0-10."""

_ATTEMPT_KEY = ("trajectory_id", "step_number", "iteration")
TO_TRAJECTORY = ForeignKey(("trajectory_id",), "trajectories", ("trajectory_id",))
TO_ATTEMPT = ForeignKey(_ATTEMPT_KEY, "attempts", _ATTEMPT_KEY)
_SHARD = "Shard (Dagster partition) of the prompt"


class PlanRow(Row):
    """A step of a plan: one picture to draw, or text alone when `prompt` is null."""

    prompt_id: str = Field(description="Prompt that was planned")
    plan_id: str = Field(description="Id shared by the steps of one plan")
    shard: str = Field(description=_SHARD)
    planner: str = Field(description="Backend and model that wrote the plan")
    reasoning: str = Field(description="The planner's reasoning, the same on every step of a plan")
    step_number: int = Field(description="1-based; a continued plan goes on from its input")
    step_name: str = Field(description="Short title of the step")
    instruction: str | None = Field(description="What the step does, in words for a reader")
    prompt: str | None = Field(
        description="Text-to-image prompt at the first step, edit prompt later; null: draw nothing"
    )
    auxiliary_text: str | None = Field(description="Text to show beside (or instead of) a picture")


class TrajectoryRow(Row):
    """One run of the planner-critic loop over one prompt's plan."""

    trajectory_id: str = Field(description="Id of the run")
    prompt_id: str = Field(description="Prompt it tells")
    plan_id: str | None = Field(description="Plan it follows; null when planning failed")
    shard: str = Field(description=_SHARD)
    status: TrajectoryStatus = Field(
        description="complete: every step accepted; exhausted: a step reached T_max, its picture "
        "was chosen by `on_exhausted`; stopped: ended there; quarantined: an error ended it"
    )
    on_exhausted: OnExhausted = Field(description="Rule applied when T_max is reached")
    t_max: int = Field(description="Attempts allowed per step")
    steps: int = Field(description="Plan steps that were carried out, text-only ones included")
    attempts: int = Field(description="Generator calls over all steps")
    error: str | None = Field(description="Why it was quarantined, in one line")


class AttemptRow(Row):
    """One generator call and the critic's verdict on it."""

    trajectory_id: str = Field(description="Trajectory the attempt belongs to")
    prompt_id: str = Field(description="Prompt the trajectory tells")
    shard: str = Field(description=_SHARD)
    step_number: int = Field(description="Plan step being drawn")
    iteration: int = Field(description="0-based; 0 draws the plan's own prompt")
    prompt: str = Field(description="The text that made this image")
    source_image: str | None = Field(
        description="sha256 of the picture it was drawn from; null: text-to-image on a white canvas"
    )
    image: str = Field(description="sha256 of the picture drawn")
    seed: int = Field(description="Seed of the draw, different for every retry")
    accepted: bool = Field(description="The critic's verdict")
    chosen: bool = Field(description="True for the picture the story went on with")
    refined_prompt: str = Field(description="What the critic proposed next; empty when accepted")
    reasoning: str = Field(description="The critic's reasoning")
    generator: str = Field(description="Backend and model that drew")
    critic: str = Field(description="Backend and model that judged")
    generator_seconds: float = Field(description="Wall time of the draw, seconds")
    critic_seconds: float = Field(description="Wall time of the verdict, seconds")


class ScoreRow(Row):
    """A scorer's grades of one attempt, each 0-10 (VIEScore, refined)."""

    trajectory_id: str = Field(description="Trajectory of the attempt")
    prompt_id: str = Field(description="Prompt of the attempt")
    shard: str = Field(description=_SHARD)
    step_number: int = Field(description="Step of the attempt")
    iteration: int = Field(description="Iteration of the attempt")
    edit_success: float = Field(description="How far the instruction was carried out")
    over_edit: float = Field(description="10: nothing else changed")
    naturalness: float = Field(description="How natural the picture looks")
    artifacts: float = Field(description="10: no artifacts")
    semantics: float = Field(description="min(edit_success, over_edit)")
    quality: float = Field(description="min(naturalness, artifacts)")
    overall: float = Field(description="sqrt(semantics * quality)")
    scorer: str = Field(description="Backend and model that scored")


class MemberScoreRow(Row):
    """What a member of an ensemble of scorers said of an attempt; `scores` has the means."""

    trajectory_id: str = Field(description="Trajectory of the attempt")
    prompt_id: str = Field(description="Prompt of the attempt")
    shard: str = Field(description=_SHARD)
    step_number: int = Field(description="Step of the attempt")
    iteration: int = Field(description="Iteration of the attempt")
    member: str = Field(description="Backend of the member, as the profile's `ensemble` names it")
    scorer: str = Field(description="Its backend and model")
    weight: float = Field(description="Its weight in the mean of each grade")
    edit_success: float | None = Field(description="As in `scores`; null: it refused")
    over_edit: float | None = Field(description="Likewise")
    naturalness: float | None = Field(description="Likewise")
    artifacts: float | None = Field(description="Likewise")
    semantics: float | None = Field(description="min(edit_success, over_edit)")
    quality: float | None = Field(description="min(naturalness, artifacts)")
    overall: float | None = Field(description="sqrt(semantics * quality)")
    refusal: str | None = Field(
        description="Why there are no grades, in one line; the means are those of the others"
    )


class ModelCallRow(Row):
    """One call of a model, whoever made it: the ledger."""

    call_id: str = Field(description="Id of the call")
    asset: str = Field(description="Asset (or service) on whose behalf it was made")
    shard: str = Field(description=_SHARD)
    prompt_id: str = Field(description="Prompt it was made for")
    step_number: int | None = Field(description="Step, where there is one")
    iteration: int | None = Field(description="Iteration, where there is one")
    role: Role = Field(description="Role the model played")
    backend: str = Field(description="Backend of the profile")
    model: str = Field(description="Model name")
    request_hash: str = Field(description="Hash of model, prompt, images, seed and settings")
    input_tokens: int | None = Field(description="Prompt tokens, where the backend counts them")
    output_tokens: int | None = Field(description="Completion tokens, likewise")
    images: int = Field(description="Pictures sent and received")
    seconds: float = Field(description="Wall time, retries included")
    cost_usd: float | None = Field(description="Price by the profile's table; null: not priced")
    cached: bool = Field(description="Answered from a journal instead of the model")
    retries: int = Field(description="Tries beyond the first")
    error: str | None = Field(description="Final error; null: it succeeded")
    started_at: datetime = Field(description="When the call began, UTC")


class QuarantineRow(Row):
    """A prompt set aside, with its reason; its shard went on without it."""

    prompt_id: str = Field(description="Prompt that was set aside")
    shard: str = Field(description=_SHARD)
    stage: str = Field(
        description="Asset in which it happened: plans, trajectories, scores, generations"
    )
    reason: str = Field(description="Why, in one line")


PLANS = Table(
    "plans", PlanRow, key=("plan_id", "step_number"), sharded=True, references=(TO_PROMPT,)
)
TRAJECTORIES = Table(
    "trajectories", TrajectoryRow, key=("trajectory_id",), sharded=True, references=(TO_PROMPT,)
)
ATTEMPTS = Table(
    "attempts",
    AttemptRow,
    key=_ATTEMPT_KEY,
    sharded=True,
    references=(TO_PROMPT, TO_TRAJECTORY),
)
SCORES = Table(
    "scores",
    ScoreRow,
    key=_ATTEMPT_KEY,
    sharded=True,
    references=(TO_ATTEMPT,),
)
MEMBER_SCORES = Table(
    "member_scores",
    MemberScoreRow,
    key=(*_ATTEMPT_KEY, "member"),
    sharded=True,
    references=(TO_ATTEMPT,),
)
MODEL_CALLS = Table("model_calls", ModelCallRow, key=("call_id",), sharded=True)
QUARANTINE = Table("quarantine", QuarantineRow, key=("prompt_id", "stage"), sharded=True)
