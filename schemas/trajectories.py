"""Tables of the planner-critic loop: plans, trajectories, attempts, scores, calls, quarantine."""

from datetime import datetime
from typing import Literal, get_args

from pydantic import Field

from .base import ForeignKey, Row, Table
from .prompts import TO_PROMPT

LoopRole = Literal["planner", "generator", "critic", "scorer"]
LOOP_ROLES: tuple[LoopRole, ...] = get_args(LoopRole)
# The roles of the loop, and of models beside it: one proposes terms for vocabulary banks, one
# writes rubrics, one judges by them, one answers the questions of benchmarks.
Role = Literal[LoopRole, "expander", "rubric_writer", "judge", "benchmark_judge"]
TrajectoryStatus = Literal["complete", "exhausted", "stopped", "quarantined"]
OnExhausted = Literal["last", "best", "stop"]
ScoreCalls = Literal["one", "two"]

ATTEMPT_KEY = ("trajectory_id", "step_number", "iteration")
_MEMBER_KEY = (*ATTEMPT_KEY, "member")
TO_TRAJECTORY = ForeignKey(("trajectory_id",), "trajectories", ("trajectory_id",))
TO_ATTEMPT = ForeignKey(ATTEMPT_KEY, "attempts", ATTEMPT_KEY)
_SHARD = "Shard (Dagster partition) of the prompt"
ReviewKind = Literal["verdict", "preference", "prompt"]


class PlanRow(Row):
    """A step of a plan: one image to generate, or text alone when `prompt` is null."""

    prompt_id: str = Field(description="Prompt that was planned")
    plan_id: str = Field(description="Id shared by the steps of one plan")
    shard: str = Field(description=_SHARD)
    planner: str = Field(description="Backend and model that wrote the plan")
    reasoning: str = Field(description="The planner's reasoning, the same on every step of a plan")
    step_number: int = Field(description="1-based; a continued plan starts after its input")
    step_name: str = Field(description="Short title of the step")
    instruction: str | None = Field(description="What the step does, in plain words")
    prompt: str | None = Field(
        description="Text-to-image prompt at the first step, edit prompt later; null: no image"
    )
    auxiliary_text: str | None = Field(description="Text to show with (or instead of) the image")


class TrajectoryRow(Row):
    """One run of the planner-critic loop over one prompt's plan."""

    trajectory_id: str = Field(description="Id of the run")
    prompt_id: str = Field(description="Prompt of the plan")
    plan_id: str | None = Field(description="Plan it follows; null when planning failed")
    shard: str = Field(description=_SHARD)
    status: TrajectoryStatus = Field(
        description="complete: every step accepted; exhausted: a step reached T_max, its image was "
        "chosen by `on_exhausted`; stopped: ended at that step; quarantined: ended by an error"
    )
    on_exhausted: OnExhausted = Field(description="Rule applied when T_max is reached")
    t_max: int = Field(description="Attempts allowed per step")
    steps: int = Field(description="Plan steps that were carried out, text-only ones included")
    attempts: int = Field(description="Generator calls over all steps")
    error: str | None = Field(description="Why it was quarantined, in one line")


class AttemptRow(Row):
    """One generator call and the critic's verdict on it."""

    trajectory_id: str = Field(description="Trajectory the attempt belongs to")
    prompt_id: str = Field(description="Prompt of the trajectory")
    shard: str = Field(description=_SHARD)
    step_number: int = Field(description="Plan step")
    iteration: int = Field(description="0-based; iteration 0 uses the plan's own prompt")
    prompt: str = Field(description="The prompt given to the generator")
    source_image: str | None = Field(
        description="sha256 of the image that was edited; null: text-to-image on a white canvas"
    )
    image: str = Field(description="sha256 of the generated image")
    seed: int = Field(description="Seed of the generator, different for every attempt")
    accepted: bool = Field(description="The critic's verdict")
    chosen: bool = Field(description="True for the image that the trajectory continued with")
    refined_prompt: str = Field(description="Next prompt by the critic; empty when accepted")
    reasoning: str = Field(description="The critic's reasoning")
    generator: str = Field(description="Backend and model of the generator")
    critic: str = Field(description="Backend and model of the critic")
    generator_seconds: float = Field(description="Wall time of the generator, seconds")
    critic_seconds: float = Field(description="Wall time of the critic, seconds")


class _AttemptScore(Row):
    trajectory_id: str = Field(description="Trajectory of the attempt")
    prompt_id: str = Field(description="Prompt of the attempt")
    shard: str = Field(description=_SHARD)
    step_number: int = Field(description="Step of the attempt")
    iteration: int = Field(description="Iteration of the attempt")


class ScoreRow(_AttemptScore):
    """A scorer's grades of one attempt, each 0-10 (VIEScore, refined)."""

    edit_success: float = Field(description="How well the instruction was carried out")
    over_edit: float = Field(description="10: nothing else changed")
    naturalness: float = Field(description="How natural the image looks")
    artifacts: float = Field(description="10: no artifacts")
    semantics: float = Field(description="min(edit_success, over_edit)")
    quality: float = Field(description="min(naturalness, artifacts)")
    overall: float = Field(description="sqrt(semantics * quality)")
    scorer: str = Field(description="Backend and model that scored")
    calls: ScoreCalls | None = Field(
        None,
        description="two: semantics and quality in a call each, quality of the image after alone "
        "(paper, section 3.2); one: all grades in one call; null: not a model at a provider, "
        "or an ensemble (see `member_scores`)",
    )


GRADES = tuple(name for name, info in ScoreRow.model_fields.items() if info.annotation is float)
"""Grade columns of `scores` and `member_scores`, each 0-10."""


class MemberScoreRow(_AttemptScore):
    """Grades of an attempt by one member of an ensemble of scorers; `scores` has the means."""

    member: str = Field(description="Backend of the member, as the profile's `ensemble` names it")
    scorer: str = Field(description="Its backend and model")
    weight: float = Field(description="Its weight in the mean of each grade")
    edit_success: float | None = Field(description="As in `scores`; null: no grades")
    over_edit: float | None = Field(description="Likewise")
    naturalness: float | None = Field(description="Likewise")
    artifacts: float | None = Field(description="Likewise")
    semantics: float | None = Field(description="min(edit_success, over_edit)")
    quality: float | None = Field(description="min(naturalness, artifacts)")
    overall: float | None = Field(description="sqrt(semantics * quality)")
    refusal: str | None = Field(
        description="Why there are no grades, in one line; the means are over the other members"
    )
    calls: ScoreCalls | None = Field(None, description="As in `scores`")


class ModelCallRow(Row):
    """One model call: the ledger of cost and latency."""

    call_id: str = Field(description="Id of the call")
    asset: str = Field(description="Asset (or service) that made it")
    shard: str = Field(description=_SHARD)
    prompt_id: str = Field(description="Prompt it was made for")
    step_number: int | None = Field(description="Step, if any")
    iteration: int | None = Field(description="Iteration, if any")
    role: Role = Field(description="Role of the model")
    backend: str = Field(description="Backend of the profile")
    model: str = Field(description="Model name")
    request_hash: str = Field(description="Hash of model, prompt, images, seed and settings")
    input_tokens: int | None = Field(description="Prompt tokens, if the backend counts them")
    output_tokens: int | None = Field(description="Completion tokens, likewise")
    images: int = Field(description="Images sent and received")
    seconds: float = Field(description="Wall time, retries included")
    cost_usd: float | None = Field(description="Price by the profile's prices; null: not priced")
    estimated_usd: float | None = Field(
        None,
        description="Part of it that is an estimate: requests without an answer, which the "
        "provider may bill; null: none",
    )
    cached: bool = Field(description="Answered from a journal instead of the model")
    retries: int = Field(description="Retries after the first try")
    error: str | None = Field(description="Final error; null: it succeeded")
    started_at: datetime = Field(description="Start of the call, UTC")


class QuarantineRow(Row):
    """A prompt excluded because of an error; its shard continued without it."""

    prompt_id: str = Field(description="Prompt that was excluded")
    shard: str = Field(description=_SHARD)
    stage: str = Field(description="Asset of the error: plans, trajectories, scores, generations")
    reason: str = Field(description="Why, in one line")


class BranchRow(Row):
    """A recorded trajectory played on from one of its attempts, with something changed there. Its
    attempts, those before included, are the table `branch_attempts`."""

    branch_id: str = Field(description="Id of the branch, the `trajectory_id` of its attempts")
    parent_id: str = Field(description="The trajectory, or the branch, that it leaves")
    trajectory_id: str = Field(description="The recorded trajectory at the root of the tree")
    prompt_id: str = Field(description="Prompt of the trajectory")
    shard: str = Field(description=_SHARD)
    step_number: int = Field(description="Step of the attempt from which on it differs")
    iteration: int = Field(description="Iteration of that attempt")
    prompt: str | None = Field(description="Draws that attempt instead; null: the parent's prompt")
    seed: int | None = Field(description="Seed from that attempt on; null: the parent's")
    critic: str | None = Field(description="Critic from that attempt on; null: the parent's")
    accept: bool = Field(description="The attempt is accepted, whatever the critic says")
    status: TrajectoryStatus = Field(description="How it ended, as of a trajectory")
    steps: int = Field(description="Plan steps that were carried out, text-only ones included")
    attempts: int = Field(description="Attempts over all steps, those before the change included")
    calls: int = Field(description="Model calls that were made for it: no journal had them")
    error: str | None = Field(description="Why it was quarantined, in one line")

    @property
    def summary(self) -> str:
        """Where it leaves its parent, what is changed there, and how it ended."""
        named = {"prompt": self.prompt, "seed": self.seed, "critic": self.critic}
        changes = [f"{name} {value}" for name, value in named.items() if value is not None]
        changes += ["accepted"] if self.accept else []
        at = f"{self.branch_id[:12]} at {self.step_number} {self.iteration}"
        return f"{at}: {', '.join(changes) or 'nothing changed'}; {self.status}"


PLANS = Table(
    "plans", PlanRow, key=("plan_id", "step_number"), sharded=True, references=(TO_PROMPT,)
)
TRAJECTORIES = Table(
    "trajectories", TrajectoryRow, key=("trajectory_id",), sharded=True, references=(TO_PROMPT,)
)
ATTEMPTS = Table(
    "attempts", AttemptRow, key=ATTEMPT_KEY, sharded=True, references=(TO_PROMPT, TO_TRAJECTORY)
)
SCORES = Table(
    "scores", ScoreRow, key=ATTEMPT_KEY, version=2, sharded=True, references=(TO_ATTEMPT,)
)
MEMBER_SCORES = Table(
    "member_scores",
    MemberScoreRow,
    key=_MEMBER_KEY,
    version=2,
    sharded=True,
    references=(TO_ATTEMPT,),
)
BRANCHES = Table("branches", BranchRow, key=("branch_id",), sharded=True)
BRANCH_ATTEMPTS = Table("branch_attempts", AttemptRow, key=ATTEMPT_KEY, sharded=True)
MODEL_CALLS = Table("model_calls", ModelCallRow, key=("call_id",), version=2, sharded=True)
QUARANTINE = Table("quarantine", QuarantineRow, key=("prompt_id", "stage"), sharded=True)


class ReviewRow(Row):
    """What a person said of an attempt. Rows are only added: of a reviewer's rows of one kind about
    the same attempt (or pair of attempts), the newest counts, and none if that is withdrawn."""

    review_id: str = Field(description="Id of the review")
    shard: str = Field(description="Shard (Dagster partition) of the prompt")
    prompt_id: str = Field(description="Prompt of the attempt")
    trajectory_id: str = Field(description="Trajectory of the attempt")
    step_number: int = Field(description="Step of the attempt")
    iteration: int = Field(description="Iteration of the attempt; of two compared ones, the lower")
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
    agrees: bool | None = Field(None, description="verdict: whether they agree with the critic")
    accepted: bool | None = Field(None, description="verdict: their own verdict on the image")
    other_iteration: int | None = Field(None, description="preference: the step's other attempt")
    other_image: str | None = Field(None, description="preference: sha256 of its image")
    better_iteration: int | None = Field(None, description="preference: the better one of the two")
    prompt: str | None = Field(None, description="prompt: what the next image should be made with")
    withdrawn: bool = Field(False, description="True: takes back the review before")


REVIEWS = Table("reviews", ReviewRow, key=("review_id",), sharded=True)

REVIEWED_THING = ("reviewer", "kind", *ATTEMPT_KEY, "other_iteration")
"""Columns that say who reviewed what: of rows with the same values the newest counts."""
