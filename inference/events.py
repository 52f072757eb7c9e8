"""What happens while a story is told, as it happens: the loop yields these, listeners collect."""

from dataclasses import dataclass

from schemas.trajectories import ModelCallRow, TrajectoryStatus
from warehouse import EncodedImage

from .roles import Plan, PlanStep, Verdict


@dataclass(frozen=True)
class PlanReady:
    """The planner answered; its steps are what follows."""

    plan: Plan
    call: ModelCallRow


@dataclass(frozen=True)
class StepStarted:
    """The loop turns to the next step of the plan."""

    step: PlanStep


@dataclass(frozen=True)
class TextEmitted:
    """A text-only step: its words are the answer, nothing is drawn."""

    step: PlanStep
    text: str


@dataclass(frozen=True)
class ImageGenerated:
    """A generator call came back: `prompt` is the text that made `picture` out of `source`."""

    step: PlanStep
    iteration: int
    prompt: str
    seed: int
    source: EncodedImage | None
    picture: EncodedImage
    call: ModelCallRow


@dataclass(frozen=True)
class AttemptJudged:
    """The critic's verdict on a drawn picture; with it the attempt is complete."""

    drawn: ImageGenerated
    verdict: Verdict
    call: ModelCallRow


@dataclass(frozen=True)
class StepAccepted:
    """The critic accepted; the story goes on from this attempt's picture."""

    step: PlanStep
    chosen: AttemptJudged


@dataclass(frozen=True)
class StepExhausted:
    """T_max attempts, all rejected. `chosen` is what the story goes on from; None: it stops."""

    step: PlanStep
    chosen: AttemptJudged | None


@dataclass(frozen=True)
class TrajectoryFinished:
    """The last event of a story that no error ended.

    `wasted`: draws that were begun ahead of a verdict and then not needed.
    """

    status: TrajectoryStatus
    wasted: int = 0


@dataclass(frozen=True)
class TrajectoryFailed:
    """The last event of a request that cannot be answered.

    `refused`: the request itself is to blame; else another try may succeed.
    """

    reason: str
    refused: bool


Event = (
    PlanReady
    | StepStarted
    | TextEmitted
    | ImageGenerated
    | AttemptJudged
    | StepAccepted
    | StepExhausted
    | TrajectoryFinished
    | TrajectoryFailed
)
