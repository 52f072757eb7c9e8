"""Tables of rounds, in which the agents are trained on what they made, and of failures."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from .base import Row, Table
from .curation import ChatMessageRow, Evaluation, ImportKind
from .prompts import TO_PROMPT

RowOrigin = Literal["new", "failure", "replay"]
_ORIGINS = (
    "new: made in this round; failure: what an agent got wrong in it, with the right answer; "
    "replay: older rows"
)
RoundDecision = Literal["accepted", "not_accepted", "blocked"]
FailureSource = Literal["trajectories", "evaluation"]
FailureKind = Literal["category", "wording", "skill"]


class RoundTrainingRow(Row):
    """A row that a round's agents are trained on: the sets of rounds, in all their origins."""

    row_id: str = Field(description="Id of the row in its set")
    round: int = Field(description="1-based")
    data_set: ImportKind = Field(description="The training set that it is a row of")
    origin: RowOrigin = Field(description=_ORIGINS)
    weight: int = Field(
        description="How often it is trained on: copies made by balancing, and of failures "
        "`rounds.failure_weight`"
    )
    prompt_id: str | None = Field(description="Prompt it came from; null for imported documents")
    messages: list[ChatMessageRow] = Field(description="User turn and, of SFT sets, assistant turn")
    images: list[str] = Field(description="sha256 of the images, in order of their placeholders")
    origin_prompt: str | None = Field(description="critic_rl: the plan's prompt for the step")
    rewritten_prompt: str | None = Field(
        description="critic_rl: the prompt of the edited image; empty at iteration 0"
    )
    evaluation: Evaluation | None = Field(description="critic_rl: ground truth of the edited image")


class RoundRowCount(Row):
    """Rows of a training set of a round, by where they come from."""

    data_set: str = Field(description="planner_sft, critic_sft, critic_rl")
    source: RowOrigin = Field(description=_ORIGINS)
    rows: int = Field(description="Number of rows, as often as they are trained on")


class RoundMeasure(Row):
    """A metric of a round's agents on a benchmark, and its difference to those it began with."""

    benchmark: str = Field(description="Benchmark; only a -dev one decides anything")
    metric: str = Field(description="Metric, as in `evaluations`")
    mean: float = Field(description="Mean of the round's agents")
    low: float = Field(description="Lower end of its bootstrap interval")
    high: float = Field(description="Upper end")
    count: int = Field(description="Items")
    difference: float | None = Field(
        description="Paired difference to the agents that the round began with; null: those were "
        "not evaluated on the same items"
    )
    difference_low: float | None = Field(description="Lower end of its bootstrap interval")
    difference_high: float | None = Field(description="Upper end")


class RoundDiversity(Row):
    """How varied, how long, and how often accepted what the agents made in a round is."""

    distinct_plans: float = Field(
        description="Distinct pairs of words by all pairs, in windows of 100 prompts of plans"
    )
    distinct_refinements: float = Field(description="The same of refined prompts")
    distinct_images: float = Field(description="Distinct images by attempts")
    accept_rate: float = Field(description="Share of attempts that the critic accepted")
    plan_words: float = Field(description="Mean words of a prompt of a plan")
    refinement_words: float = Field(description="Mean words of a refined prompt")


class RoundRow(Row):
    """A finished round: agents make trajectories of new prompts and are trained on them."""

    round: int = Field(description="1-based")
    planner: str | None = Field(description="Checkpoint in use or tried at its end; null: blocked")
    critic: str | None = Field(description="The same of the critic")
    parent_planner: str = Field(description="Checkpoint (name@version) that planned its shards")
    parent_critic: str = Field(description="Checkpoint that judged them")
    shards: list[str] = Field(description="Shards of prompts that the round added")
    rows: list[RoundRowCount] = Field(description="What was trained on")
    measures: list[RoundMeasure] = Field(description="What evaluation says; empty: blocked")
    diversity: RoundDiversity = Field(description="What the agents made")
    seconds: float = Field(description="Wall time from its beginning to its end, pauses included")
    decision: RoundDecision = Field(
        description="accepted: planner, critic or both were promoted; not_accepted: none was; "
        "blocked: a safeguard stopped it before training"
    )
    continues: bool = Field(description="Whether another round is worth it")
    why: str = Field(description="Reason of both, in one line")
    ended_at: datetime = Field(description="When it ended, UTC")


class FailureRow(Row):
    """How often agents fail in requests of one category or wording, or in steps of one skill."""

    source: FailureSource = Field(
        description="trajectories: of split train; evaluation: development items, never test"
    )
    planner: str = Field(description="Backend and model that planned")
    critic: str = Field(description="Backend and model that judged")
    kind: FailureKind = Field(
        description="category: of the request; wording: its template; skill: first word of a "
        "step's prompt, which in the sketch world is the kind of edit"
    )
    name: str = Field(description="The category, template or word")
    count: int = Field(description="Requests, or steps")
    failures: int = Field(
        description="Those with a chosen image below the score of a good one, or that were "
        "exhausted or quarantined; of evaluation: without final success"
    )
    rate: float = Field(description="failures by count")
    low: float = Field(description="Lower end of its 95 % Wilson interval")
    high: float = Field(description="Upper end")


ROUND_ROWS = Table(
    "round_rows",
    RoundTrainingRow,
    key=("round", "data_set", "row_id"),
    sharded=True,
    references=(TO_PROMPT,),
)
ROUNDS = Table("rounds", RoundRow, key=("round",), sharded=True)
FAILURES = Table("failures", FailureRow, key=("source", "planner", "critic", "kind", "name"))
