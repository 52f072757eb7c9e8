"""A generation's Response at any moment, as JSON; the field `interleave` is ours."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from schemas.generations import GenerationStatus
from schemas.trajectories import ModelCallRow, Role

from ..events import (
    AttemptJudged,
    ImageGenerated,
    PlanReady,
    RunEvent,
    RunStarted,
    RunTerminated,
    TrajectoryFailed,
    TrajectoryFinished,
)
from ..generation.trajectory_view import StepView, TrajectoryView, status_of
from ..http.errors import APIError, bad_request, unavailable
from .request_models import ImageTool, Json
from .run import STOPPED, GenerationRun

_AGENTS = ("planner", "critic")
_RESUME_HINT = "; send it again under the same Idempotency-Key to go on"

# Status of a generation -> the API's.
_STATUS = {
    "queued": "queued",
    "in_progress": "in_progress",
    "complete": "completed",
    "exhausted": "completed",
    "stopped": "incomplete",
    "cancelled": "cancelled",
    "refused": "failed",
    "failed": "failed",
    "interrupted": "failed",
}

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
        given = {"cache_write_tokens": 0, "cached_tokens": 0, "images": self.input_images}
        return {
            "input_tokens": tokens_in,
            "input_tokens_details": given,
            "output_tokens": tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0, "images": images},
            "total_tokens": tokens_in + tokens_out,
        }

    def chat(self) -> Json | None:
        """The field `usage` of a chat completion, likewise."""
        if (usage := self.responses()) is None:
            return None
        return {
            "completion_tokens": usage["output_tokens"],
            "prompt_tokens": usage["input_tokens"],
            "total_tokens": usage["total_tokens"],
            "completion_tokens_details": usage["output_tokens_details"],
            "prompt_tokens_details": {"cached_tokens": 0, "images": self.input_images},
        }

    def image(self) -> Json | None:
        """The field `usage` of the Images API, likewise; what tokens stand for is not counted."""
        if (usage := self.responses()) is None:
            return None
        del usage["output_tokens_details"]
        details = {"image_tokens": 0, "text_tokens": usage["input_tokens"]}
        return usage | {"input_tokens_details": details}

    def by_role(self) -> dict[str, UsageModel]:
        """Calls and tokens of each role; null: its backend counts no tokens."""
        roles = dict.fromkeys(call.role for call in self.calls)
        return {role: self._of_role(role) for role in roles}

    def _of_role(self, role: Role) -> UsageModel:
        calls = [call for call in self.calls if call.role == role]
        return UsageModel(
            calls=len(calls),
            input_tokens=_sum(call.input_tokens for call in calls),
            output_tokens=_sum(call.output_tokens for call in calls),
        )

    def _totals(self) -> tuple[int, int, int]:
        """Input and output tokens of the agents, and images that were generated."""
        agents = [call for call in self.calls if call.role in _AGENTS]
        tokens_in = _sum(call.input_tokens for call in agents) or 0
        tokens_out = _sum(call.output_tokens for call in agents) or 0
        return tokens_in, tokens_out, sum(call.role == "generator" for call in self.calls)


def _sum(tokens: Iterable[int | None]) -> int | None:
    known = [each for each in tokens if each is not None]
    return sum(known) if known else None


class ResponseBuilder:
    """The listener that keeps a Response up to date.

    Attributes:
        status: of the generation, as in the table `generations`, or `queued` or `in_progress`.
        error: why there is no sequence; empty: there is no error.
        wasted_draws: images that were generated ahead and not needed.
        usage: of its model calls.
        queue: where it waits, see `RequestManager.queue_place`.
    """

    def __init__(self, run: GenerationRun) -> None:
        self.run, self.state = run, TrajectoryView(run.request.text)
        self.status: RunStatus = "queued"
        self.error = ""
        self._versions: dict[str, str] = {}
        self.wasted_draws = 0
        self.image_tool = ImageTool.of(run.fields)
        self.usage = Usage(len(run.request.images))
        self.queue: QueueModel | None = None

    @classmethod
    def replay(cls, run: GenerationRun) -> "ResponseBuilder":
        """The response to what has happened so far."""
        builder = cls(run)
        for event in run.events:
            builder.note(event)
        return builder

    def note(self, event: RunEvent) -> None:
        match event:
            case RunStarted(versions=versions):
                self._versions, self.status = versions, "in_progress"
            case PlanReady(call=call) | ImageGenerated(call=call) | AttemptJudged(call=call):
                self.usage.calls.append(call)
            case TrajectoryFinished() | TrajectoryFailed() | RunTerminated():
                self.status, error = status_of(event)
                self.error = error or ""
                self.wasted_draws = getattr(event, "wasted_draws", 0)
                if isinstance(event, RunTerminated) and event.resumable:
                    self.error += _RESUME_HINT
        self.state.note(event)

    def failure(self) -> APIError | None:
        """The ending as an error; None: there is a sequence, or it was cancelled."""
        match self.state.ending:
            case TrajectoryFailed(refused=True):
                return bad_request(self.error, code="invalid_prompt")
            case TrajectoryFailed():
                # Calls have been retried already: the client need not retry.
                status = HTTPStatus.INTERNAL_SERVER_ERROR
                return APIError(status, self.error, "server_error", retry=False)
            case RunTerminated(status="interrupted") as ending if ending == STOPPED:
                return unavailable(self.error, "interrupted")
            case RunTerminated(status="interrupted"):
                status = HTTPStatus.GATEWAY_TIMEOUT
                return APIError(status, self.error, "interrupted", retry=False)
        return None

    def response(self, with_images: bool = False) -> Json:
        """The Response so far; `with_images`: with the chosen images, in base64."""
        status = _STATUS[self.status]
        code = "invalid_prompt" if self.status == "refused" else "server_error"
        repeated = {name: value for name, value in self.run.fields.items() if name != "input"}
        return {
            "tool_choice": "auto",
            "tools": [],
            **repeated,
            "id": self.run.id,
            "created_at": self.run.created_at,
            "error": {"code": code, "message": self.error} if status == "failed" else None,
            # None of the API's reasons fits: all attempts at a step were rejected.
            "incomplete_details": {"reason": None} if status == "incomplete" else None,
            "object": "response",
            "output": self._output(with_images),
            "parallel_tool_calls": False,
            "status": status,
            "completed_at": self._completed_at,
            "usage": self.usage.responses(),
            "interleave": self.interleave(),
        }

    def interleave(self) -> Json:
        """The field `interleave`: planned steps, attempts and verdicts."""
        plan, request = self.state.plan, self.run.request
        views = {view.number: view for view in self.state.steps}
        planned = (
            [views.get(step.step_number, StepView(step)) for step in plan.steps] if plan else []
        )
        scope = self.state.scope
        return GenerationModel(
            generation_id=request.generation_id,
            status=self.status,
            error=self.error or None,
            queue=self.queue,
            versions=self._versions,
            options=request.options.model_dump(),
            completed_at=self._completed_at,
            wasted_draws=self.wasted_draws,
            text=request.text,
            input_images=self.run.input_images,
            simulation=SimulationModel.model_validate(scope) if scope else None,
            reasoning=plan.reasoning if plan else "",
            usage=self.usage.by_role(),
            steps=[StepModel.model_validate(view) for view in planned],
        ).model_dump()

    def message_item(self, step: StepView) -> Json:
        """The output item of a step's text; clients join all texts without a separator."""
        separator = "" if self._ends_with_text(step) else "\n\n"
        return self._message(str(step.number), step.text + separator)

    def closing_item(self) -> Json | None:
        """The last output item of a sequence that ends with an image."""
        text = closing_text(self.state)
        return self._message("end", text) if text else None

    def image_item(self, step: StepView, with_image: bool = False) -> Json:
        """The output item of a step's image."""
        if step.finished or self.state.ending:
            status = "completed" if step.chosen else "failed"
        else:
            status = "generating" if step.attempts else "in_progress"
        chosen = step.chosen
        return {
            "id": f"ig_{self.run.request.generation_id}_{step.number}",
            "result": self.image_tool.encode(chosen.image) if with_image and chosen else None,
            "status": status,
            "type": "image_generation_call",
            "revised_prompt": chosen.prompt if chosen else None,
        }

    @property
    def _completed_at(self) -> float | None:
        """When its last model call ended."""
        completed = _STATUS[self.status] == "completed"
        return float(int(self.usage.last_call_ended_at)) if completed else None

    def _ends_with_text(self, step: StepView) -> bool:
        plan = self.state.plan
        return step.prompt is None and plan is not None and step.step == plan.steps[-1]

    def _message(self, name: str, text: str) -> Json:
        return {
            "id": f"msg_{self.run.request.generation_id}_{name}",
            "content": [text_part(text)],
            "role": "assistant",
            "status": "completed",
            "type": "message",
        }

    def _output(self, with_images: bool) -> list[Json]:
        items: list[Json] = []
        for step in self.state.steps:
            if step.text:
                items.append(self.message_item(step))
            if step.prompt is not None:
                items.append(self.image_item(step, with_images))
        closing = self.closing_item()
        return [*items, closing] if closing else items


def text_part(text: str) -> Json:
    """Text as the content of a message."""
    return {"annotations": [], "text": text, "type": "output_text"}


def closing_text(state: TrajectoryView) -> str:
    """What follows the last image of a sequence; empty: it ends with text, or with an error."""
    if not isinstance(state.ending, TrajectoryFinished) or not state.steps:
        return ""
    last = state.steps[-1]
    if last.prompt is None:
        return ""
    if last.chosen is None:
        return f"Stopped at step {last.number}: the critic rejected every attempt."
    images = len(state.images)
    done = "Done: 1 picture." if images == 1 else f"Done: {images} pictures."
    rejected = [step.number for step in state.steps if step.chosen and step.accepted is False]
    remarks = [f"The critic rejected every attempt at step {n}; it shows one." for n in rejected]
    return " ".join([done, *remarks])
