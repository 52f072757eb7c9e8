"""A request's Response, at any moment of its story.

Built from the official client's own classes, so that its shape is theirs; `interleave` is our one
field more. Pictures are left out and filled in when it is sent (`pictures_in.py`).
"""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from schemas.trajectories import ModelCallRow
from warehouse import EncodedImage

from ...events import AttemptJudged, ImageGenerated, PlanReady, TrajectoryFailed, TrajectoryFinished
from ...generation.generation_record import generation_record
from ...generation.generation_state import GenerationState, StepState
from ..lifecycle import RunEvent, RunStarted, RunTerminated

if TYPE_CHECKING:
    from openai.types.responses import (
        Response,
        ResponseOutputItem,
        ResponseOutputMessage,
        ResponseOutputText,
        ResponseStatus,
        ResponseUsage,
    )
    from openai.types.responses.response_output_item import ImageGenerationCall

RESPONSE = "resp_"
_ECHOED = (
    "background",
    "created_at",
    "instructions",
    "metadata",
    "model",
    "previous_response_id",
    "store",
)
_STATUS: "dict[str, ResponseStatus]" = {
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
_AGAIN = "; send it again under the same Idempotency-Key to go on"

Json = dict[str, Any]


@dataclass(frozen=True)
class RequestEcho:
    """What a Response says of its request.

    Args:
        echoed: fields of the request that the Response repeats.
        given: sha256 of the pictures given with it.
    """

    generation_id: str
    text: str
    given: tuple[str, ...]
    rules: Json
    echoed: Json = field(default_factory=lambda: {"created_at": int(time.time())})

    @classmethod
    def of(cls, response: Json) -> "RequestEcho":
        """What was asked for, from the Response to it."""
        record = response["interleave"]
        echoed = {name: response[name] for name in _ECHOED if name in response}
        given = tuple(record["given"])
        return cls(record["generation_id"], record["text"], given, record["rules"], echoed)

    @property
    def response_id(self) -> str:
        return f"{RESPONSE}{self.generation_id}"

    def message_id(self, step_number: int) -> str:
        return f"msg_{self.generation_id}_{step_number}"

    def picture_id(self, step_number: int) -> str:
        return f"ig_{self.generation_id}_{step_number}"


class ResponseBuilder:
    """The listener that keeps a Response up to date."""

    def __init__(self, asked: RequestEcho) -> None:
        self.asked, self.story = asked, GenerationState(asked.text)
        self.status, self.reason = "queued", ""
        self._versions: dict[str, str] = {}
        self._wasted = 0
        self._tokens: list[tuple[int, int]] = []

    def note(self, event: RunEvent) -> None:
        """Take in the next event."""
        match event:
            case RunStarted(versions=versions):
                self._versions, self.status = versions, "in_progress"
                return
            case RunTerminated(status=status, reason=reason, resumable=resumable):
                self.status, self.reason = status, reason + (_AGAIN if resumable else "")
                return
            case PlanReady(call=call) | ImageGenerated(call=call) | AttemptJudged(call=call):
                self._count(call)
            case TrajectoryFinished(status=status, wasted_draws=wasted):
                self.status, self._wasted = status, wasted
            case TrajectoryFailed(reason=reason, refused=refused):
                self.status, self.reason = "refused" if refused else "failed", reason
        self.story.note(event)

    @property
    def over(self) -> bool:
        return self.status not in ("queued", "in_progress")

    def response(self) -> "Response":
        """Everything so far."""
        from openai.types.responses import Response

        return Response(
            id=self.asked.response_id,
            object="response",
            status=_STATUS[self.status],
            output=self._items(),
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
            usage=self._usage(),
            **self._problem(),
            **self.asked.echoed,
            interleave=self.record(),
        )

    def record(self) -> Json:
        """The field `interleave`."""
        return {
            "generation_id": self.asked.generation_id,
            "status": self.status,
            "error": self.reason or None,
            "versions": self._versions,
            "rules": self.asked.rules,
            "wasted_draws": self._wasted,
            **generation_record(self.story),
            "given": list(self.asked.given),
        }

    def pictures(self) -> dict[str, EncodedImage]:
        """The story's pictures, by id of their items."""
        return {
            self.asked.picture_id(each.step.step_number): each.chosen.picture
            for each in self.story.steps
            if each.chosen
        }

    def message(self, told: StepState) -> "ResponseOutputMessage":
        """The item of a step's words."""
        from openai.types.responses import ResponseOutputMessage

        return ResponseOutputMessage(
            id=self.asked.message_id(told.step.step_number),
            type="message",
            role="assistant",
            status="completed",
            content=[text_part(told.words)],
        )

    def picture(self, told: StepState) -> "ImageGenerationCall":
        """The item of a step's picture."""
        from openai.types.responses.response_output_item import ImageGenerationCall

        return ImageGenerationCall(
            id=self.asked.picture_id(told.step.step_number),
            type="image_generation_call",
            status=self._picture_status(told),
            result=None,
        )

    def _picture_status(
        self, told: StepState
    ) -> Literal["in_progress", "completed", "generating", "failed"]:
        if told.over or self.over:
            return "completed" if told.chosen else "failed"
        return "generating" if told.attempts else "in_progress"

    def _items(self) -> "list[ResponseOutputItem]":
        items: list[ResponseOutputItem] = []
        for told in self.story.steps:
            if told.words:
                items.append(self.message(told))
            if told.step.prompt is not None:
                items.append(self.picture(told))
        return items

    def _problem(self) -> Json:
        from openai.types.responses import ResponseError
        from openai.types.responses.response import IncompleteDetails

        if self.status == "stopped":
            # None of the API's own reasons fits: a step's pictures were all refused.
            return {"incomplete_details": IncompleteDetails(reason=None), "error": None}
        if _STATUS[self.status] != "failed":
            return {"incomplete_details": None, "error": None}
        code: Literal["invalid_prompt", "server_error"]
        code = "invalid_prompt" if self.status == "refused" else "server_error"
        error = ResponseError(code=code, message=self.reason)
        return {"incomplete_details": None, "error": error}

    def _count(self, call: ModelCallRow) -> None:
        if call.input_tokens is not None or call.output_tokens is not None:
            self._tokens.append((call.input_tokens or 0, call.output_tokens or 0))

    def _usage(self) -> "ResponseUsage | None":
        """Tokens of all calls; None: no model counts them."""
        from openai.types.responses import ResponseUsage
        from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

        if not self._tokens:
            return None
        read, written = map(sum, zip(*self._tokens, strict=True))
        return ResponseUsage(
            input_tokens=read,
            input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=0),
            output_tokens=written,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
            total_tokens=read + written,
        )


def text_part(text: str) -> "ResponseOutputText":
    """Words as the content of a message."""
    from openai.types.responses import ResponseOutputText

    return ResponseOutputText(type="output_text", text=text, annotations=[])


def as_json(answer: ResponseBuilder) -> Json:
    """An answer's Response as it is kept and sent, but for the bytes of pictures."""
    return answer.response().model_dump(mode="json", exclude_unset=True)
