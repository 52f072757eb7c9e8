"""A generation's Response at any moment, in the classes of OpenAI's client.

The field `interleave` is ours. Images are left out; `streaming_events.encode_json` fills them in
when the Response is sent.
"""

from typing import Any, Literal

from openai.types.responses import (
    Response,
    ResponseError,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseStatus,
    ResponseUsage,
)
from openai.types.responses.response import IncompleteDetails
from openai.types.responses.response_output_item import ImageGenerationCall
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from schemas.trajectories import ModelCallRow
from warehouse import EncodedImage

from ...events import AttemptJudged, ImageGenerated, PlanReady, TrajectoryFailed, TrajectoryFinished
from ...generation.event_log import RunEvent, RunStarted, RunTerminated
from ...generation.generation_state import AttemptState, GenerationState, StepState
from ...roles import PlanStep
from ..request_parsing import RequestEcho

Json = dict[str, Any]

RESUME_HINT = "; send it again under the same Idempotency-Key to go on"

# Status of a generation -> the API's.
_STATUS: dict[str, ResponseStatus] = {
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
    """

    def __init__(self, request: RequestEcho) -> None:
        self.request, self.state = request, GenerationState(request.text)
        self.status, self.error = "queued", ""
        self._versions: dict[str, str] = {}
        self.wasted_draws = 0
        self._tokens: list[tuple[int, int]] = []

    def note(self, event: RunEvent) -> None:
        """Add the next event."""
        match event:
            case RunStarted(versions=versions):
                self._versions, self.status = versions, "in_progress"
            case RunTerminated(status=status, reason=reason, resumable=resumable):
                self.status, self.error = status, reason + (RESUME_HINT if resumable else "")
            case PlanReady(call=call) | ImageGenerated(call=call) | AttemptJudged(call=call):
                self._count_tokens(call)
            case TrajectoryFinished(status=status, wasted_draws=wasted_draws):
                self.status, self.wasted_draws = status, wasted_draws
            case TrajectoryFailed(reason=reason, refused=refused):
                self.status, self.error = "refused" if refused else "failed", reason
        self.state.note(event)

    @property
    def has_ended(self) -> bool:
        return self.status not in ("queued", "in_progress")

    def response(self) -> Response:
        """The Response so far, without the bytes of images."""

        return Response(
            id=self.request.response_id,
            object="response",
            status=_STATUS[self.status],
            output=self._output(),
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
            usage=self._usage(),
            **self._error_fields(),
            **self.request.fields,
            interleave=self.interleave(),
        )

    def to_json(self) -> Json:
        """`response` as JSON."""
        return self.response().model_dump(mode="json", exclude_unset=True)

    def interleave(self) -> Json:
        """The field `interleave`: planned steps, attempts and verdicts; see `GenerationModel`."""
        plan = self.state.plan
        states = {each.step.step_number: each for each in self.state.steps}
        return {
            "generation_id": self.request.generation_id,
            "status": self.status,
            "error": self.error or None,
            "versions": self._versions,
            "rules": self.request.options,
            "wasted_draws": self.wasted_draws,
            "text": self.request.text,
            "given": list(self.request.input_images),
            "reasoning": plan.reasoning if plan else "",
            "steps": [
                _step(step, states.get(step.step_number)) for step in (plan.steps if plan else ())
            ],
        }

    def images(self) -> dict[str, EncodedImage]:
        """The chosen images, by id of their items."""
        return {
            self.request.image_id(each.step.step_number): each.chosen.image
            for each in self.state.steps
            if each.chosen
        }

    def message_item(self, step: StepState) -> ResponseOutputMessage:
        """The output item of a step's text."""

        return ResponseOutputMessage(
            id=self.request.message_id(step.step.step_number),
            type="message",
            role="assistant",
            status="completed",
            content=[text_part(step.text)],
        )

    def image_item(self, step: StepState) -> ImageGenerationCall:
        """The output item of a step's image."""

        return ImageGenerationCall(
            id=self.request.image_id(step.step.step_number),
            type="image_generation_call",
            status=self._image_status(step),
            result=None,
        )

    def _image_status(
        self, step: StepState
    ) -> Literal["in_progress", "completed", "generating", "failed"]:
        if step.finished or self.has_ended:
            return "completed" if step.chosen else "failed"
        return "generating" if step.attempts else "in_progress"

    def _output(self) -> list[ResponseOutputItem]:
        items: list[ResponseOutputItem] = []
        for step in self.state.steps:
            if step.text:
                items.append(self.message_item(step))
            if step.step.prompt is not None:
                items.append(self.image_item(step))
        return items

    def _error_fields(self) -> Json:

        if self.status == "stopped":
            # None of the API's reasons fits: all attempts at a step were rejected.
            return {"incomplete_details": IncompleteDetails(reason=None), "error": None}
        if _STATUS[self.status] != "failed":
            return {"incomplete_details": None, "error": None}
        code: Literal["invalid_prompt", "server_error"]
        code = "invalid_prompt" if self.status == "refused" else "server_error"
        error = ResponseError(code=code, message=self.error)
        return {"incomplete_details": None, "error": error}

    def _count_tokens(self, call: ModelCallRow) -> None:
        if call.input_tokens is not None or call.output_tokens is not None:
            self._tokens.append((call.input_tokens or 0, call.output_tokens or 0))

    def _usage(self) -> ResponseUsage | None:
        """Tokens of all calls; None: no backend counts them."""

        if not self._tokens:
            return None
        input_tokens, output_tokens = map(sum, zip(*self._tokens, strict=True))
        return ResponseUsage(
            input_tokens=input_tokens,
            input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=0),
            output_tokens=output_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
            total_tokens=input_tokens + output_tokens,
        )


def text_part(text: str) -> ResponseOutputText:
    """Text as the content of a message."""
    return ResponseOutputText(type="output_text", text=text, annotations=[])


def _step(step: PlanStep, state: StepState | None) -> Json:
    state = state or StepState(step)
    chosen = state.chosen
    without_choice = False if state.finished and step.prompt is not None else None
    return {
        "number": step.step_number,
        "name": step.step_name,
        "words": state.text,
        "prompt": step.prompt,
        "begun": state.finished or bool(state.attempts),
        "picture": chosen.image.sha256 if chosen else None,
        "iteration": chosen.draw.iteration if chosen else None,
        "accepted": chosen.verdict.accepted if chosen and chosen.verdict else without_choice,
        "attempts": [_attempt(attempt) for attempt in state.attempts],
    }


def _attempt(attempt: AttemptState) -> Json:
    draw, verdict = attempt.draw, attempt.verdict
    return {
        "iteration": draw.iteration,
        "prompt": draw.prompt,
        "seed": draw.seed,
        "picture": draw.image.sha256,
        "seconds": draw.call.seconds,
        "accepted": verdict.accepted if verdict else None,
        "reasoning": verdict.reasoning if verdict else None,
        "refined_prompt": verdict.refined_prompt if verdict else None,
    }
