"""A generation's Response at any moment, as JSON; the field `interleave` is ours."""

from ...events import (
    AttemptJudged,
    ImageGenerated,
    PlanReady,
    RunEvent,
    RunStarted,
    RunTerminated,
    TrajectoryFailed,
    TrajectoryFinished,
)
from ...generation.trajectory_view import StepView, TrajectoryView, status_of
from ..accepted_values import ImageTool
from ..request_models import Json
from ..response_store import StoredResponse
from .generation_model import (
    GenerationModel,
    QueueModel,
    RunStatus,
    SimulationModel,
    StepModel,
    Usage,
)

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


class ResponseBuilder:
    """The listener that keeps a Response up to date.

    Attributes:
        status: of the generation, as in the table `generations`, or `queued` or `in_progress`.
        error: why there is no sequence; empty: there is no error.
        wasted_draws: images that were generated ahead and not needed.
        usage: of its model calls.
        queue: where it waits, see `RequestManager.queue_place`.
    """

    def __init__(self, stored: StoredResponse) -> None:
        self.stored, self.state = stored, TrajectoryView(stored.request.text)
        self.status: RunStatus = "queued"
        self.error = ""
        self._versions: dict[str, str] = {}
        self.wasted_draws = 0
        self.image_tool = ImageTool.of(stored.fields)
        self.usage = Usage(len(stored.request.images))
        self.queue: QueueModel | None = None

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

    def response(self, with_images: bool = False) -> Json:
        """The Response so far; `with_images`: with the chosen images, in base64."""
        status = _STATUS[self.status]
        code = "invalid_prompt" if self.status == "refused" else "server_error"
        repeated = {name: value for name, value in self.stored.fields.items() if name != "input"}
        return {
            "tool_choice": "auto",
            "tools": [],
            **repeated,
            "id": self.stored.id,
            "created_at": self.stored.created_at,
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
        plan, request = self.state.plan, self.stored.request
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
            input_images=self.stored.input_images,
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
            "id": f"ig_{self.stored.request.generation_id}_{step.number}",
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
            "id": f"msg_{self.stored.request.generation_id}_{name}",
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
