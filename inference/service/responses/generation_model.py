"""How a sequence was made: the field `interleave` of a response, and the usage of its calls."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from schemas.generations import GenerationStatus
from schemas.trajectories import ModelCallRow

from ..request_models import Json

_AGENTS = ("planner", "critic")

ImageHash = Annotated[str, BeforeValidator(lambda image: getattr(image, "sha256", image))]
RunStatus = Literal["queued", "in_progress", GenerationStatus]


class AttemptModel(BaseModel, from_attributes=True):
    """A generated image of a step, and the critic's verdict; null: not judged yet."""

    iteration: int
    prompt: str
    seed: int
    image: ImageHash = Field(description="Its sha256")
    seconds: float = Field(description="Of the generator's call")
    accepted: bool | None
    reasoning: str | None
    refined_prompt: str | None


class StepModel(BaseModel, from_attributes=True):
    """A step of the plan."""

    number: int
    name: str
    text: str
    prompt: str | None = Field(description="null: text only")
    started: bool
    image: ImageHash | None = Field(description="sha256 of the chosen one")
    iteration: int | None = Field(description="Of the chosen attempt")
    accepted: bool | None
    attempts: list[AttemptModel]


class SimulationModel(BaseModel, from_attributes=True):
    """What a demo world says about its answer."""

    notice: str = Field(description="What drew it, for people")
    not_drawn: list[str] = Field(description="Phrases of the request that it does not know")
    remarks: list[str] = Field(description="What cannot be done as requested, in sentences")
    refusal: str | None = Field(description="Why it cannot illustrate the request")
    suggestions: list[str] = Field(description="After a refusal: requests that it can illustrate")


class UsageModel(BaseModel):
    """Model calls of a role, and their tokens; null: its backend does not count them."""

    calls: int
    input_tokens: int | None
    output_tokens: int | None


class QueueModel(BaseModel):
    """Where a request waits."""

    position: int = Field(description="1: it is the next")
    expected_seconds: float | None = Field(
        description="Until it starts, estimated from the last requests; null: none has ended yet"
    )


class GenerationModel(BaseModel):
    """How a sequence was made: the field `interleave` of a response."""

    generation_id: str
    status: RunStatus
    error: str | None
    queue: QueueModel | None = Field(description="null: it does not wait for others (any more)")
    versions: dict[str, str] = Field(description="planner, generator and critic that made it")
    options: dict[str, Any] = Field(description="Options of the loop")
    completed_at: float | None = Field(description="Seconds since 1970; null: it was not completed")
    wasted_draws: int = Field(description="Images that were generated ahead and not needed")
    text: str
    input_images: list[str] = Field(description="sha256 of the images given with the request")
    simulation: SimulationModel | None = Field(
        description="null: an image model draws, or it is not known yet"
    )
    reasoning: str = Field(description="Of the planner")
    usage: dict[str, UsageModel] = Field(description="By role: planner, generator, critic")
    steps: list[StepModel]


@dataclass
class Usage:
    """The calls so far. `input_images`: how many the request has."""

    input_images: int = 0
    calls: list[ModelCallRow] = field(default_factory=list)

    @property
    def last_call_ended_at(self) -> float:
        """Seconds since 1970; 0: there is no call."""
        return max((call.started_at.timestamp() + call.seconds for call in self.calls), default=0.0)

    def responses(self) -> Json | None:
        """The field `usage` of a Response: tokens of planner and critic; None: no call yet.

        A call whose backend counts no tokens adds none, see `by_role`.
        """
        if not self.calls:
            return None
        tokens_in, tokens_out, images = self._totals()
        return {
            "input_tokens": tokens_in,
            "input_tokens_details": {
                "cache_write_tokens": 0,
                "cached_tokens": 0,
                "images": self.input_images,
            },
            "output_tokens": tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0, "images": images},
            "total_tokens": tokens_in + tokens_out,
        }

    def chat(self) -> Json | None:
        """The field `usage` of a chat completion, likewise."""
        if not self.calls:
            return None
        tokens_in, tokens_out, images = self._totals()
        return {
            "completion_tokens": tokens_out,
            "prompt_tokens": tokens_in,
            "total_tokens": tokens_in + tokens_out,
            "completion_tokens_details": {"reasoning_tokens": 0, "images": images},
            "prompt_tokens_details": {"cached_tokens": 0, "images": self.input_images},
        }

    def image(self) -> Json | None:
        """The field `usage` of the Images API, likewise; what tokens stand for is not counted."""
        if not self.calls:
            return None
        tokens_in, tokens_out, _ = self._totals()
        return {
            "input_tokens": tokens_in,
            "input_tokens_details": {"image_tokens": 0, "text_tokens": tokens_in},
            "output_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        }

    def by_role(self) -> dict[str, UsageModel]:
        """Calls and tokens of each role; null: its backend counts no tokens."""
        roles = dict.fromkeys(call.role for call in self.calls)
        return {role: _count([call for call in self.calls if call.role == role]) for role in roles}

    def _totals(self) -> tuple[int, int, int]:
        """Input and output tokens of the agents, and images that were generated."""
        agents = [call for call in self.calls if call.role in _AGENTS]
        images = sum(call.role == "generator" for call in self.calls)
        return (
            sum(call.input_tokens or 0 for call in agents),
            sum(call.output_tokens or 0 for call in agents),
            images,
        )


def _count(calls: Sequence[ModelCallRow]) -> UsageModel:
    return UsageModel(
        calls=len(calls),
        input_tokens=_sum([call.input_tokens for call in calls]),
        output_tokens=_sum([call.output_tokens for call in calls]),
    )


def _sum(tokens: Sequence[int | None]) -> int | None:
    known = [each for each in tokens if each is not None]
    return sum(known) if known else None
