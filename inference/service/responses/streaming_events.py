"""From a request's events to those of the Responses API, and those that only our clients know."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from ...events import (
    AttemptJudged,
    ImageGenerated,
    PlanReady,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TrajectoryFailed,
    TrajectoryFinished,
)
from ...generation.generation_state import StepState
from ..lifecycle import RunEvent, RunStarted, RunTerminated
from .image_outputs import Json, Pictures
from .response_builder import RequestEcho, ResponseBuilder, text_part

if TYPE_CHECKING:
    from pydantic import BaseModel


def warm_up() -> None:
    """Load the API's classes, which takes a second, before the first request has to."""
    from openai.types import chat
    from openai.types import responses as api

    for kind in (
        api.Response,
        api.ResponseCreatedEvent,
        api.ResponseQueuedEvent,
        api.ResponseInProgressEvent,
        api.ResponseOutputItemAddedEvent,
        api.ResponseOutputItemDoneEvent,
        api.ResponseContentPartAddedEvent,
        api.ResponseContentPartDoneEvent,
        api.ResponseTextDeltaEvent,
        api.ResponseTextDoneEvent,
        api.ResponseImageGenCallPartialImageEvent,
        api.ResponseCompletedEvent,
        chat.ChatCompletion,
        chat.ChatCompletionChunk,
    ):
        kind.model_rebuild()


@dataclass(frozen=True)
class StreamEvent:
    """An event as clients get it; `pictures` (by item id) are filled in when it is sent."""

    payload: Json
    pictures: Pictures = field(default_factory=dict)

    @property
    def type(self) -> str:
        return str(self.payload["type"])

    @property
    def number(self) -> int:
        return int(self.payload["sequence_number"])


class ResponseEventBuilder:
    """Tells a request's events in order; the same events get the same numbers every time."""

    def __init__(self, asked: RequestEcho) -> None:
        self._answer, self._asked = ResponseBuilder(asked), asked
        self._number = -1
        self._items = -1

    def opening(self) -> Iterator[StreamEvent]:
        """What comes before the first event."""
        from openai.types import responses as api

        for kind in (api.ResponseCreatedEvent, api.ResponseQueuedEvent):
            yield self._event(kind, response=self._answer.response())

    def notices(self, event: RunEvent) -> Iterator[StreamEvent]:
        """What the next event means to clients."""
        self._answer.note(event)
        match event:
            case RunStarted():
                yield self._started()
            case PlanReady():
                yield self._planned(event)
            case StepStarted():
                yield from self._step_started(self._told)
            case ImageGenerated():
                yield from self._drawn(event)
            case AttemptJudged():
                yield self._judged(event)
            case StepAccepted() | StepExhausted():
                yield from self._settled(event)
            case TrajectoryFinished() | TrajectoryFailed() | RunTerminated():
                yield from self._over()

    @property
    def _told(self) -> StepState:
        return self._answer.story.steps[-1]

    @property
    def _picture_id(self) -> str:
        return self._asked.picture_id(self._told.step.step_number)

    def _started(self) -> StreamEvent:
        from openai.types.responses import ResponseInProgressEvent

        return self._event(ResponseInProgressEvent, response=self._answer.response())

    def _planned(self, event: PlanReady) -> StreamEvent:
        steps = [
            {
                "number": step.step_number,
                "name": step.step_name,
                "words": StepState(step).words,
                "draws": step.prompt is not None,
            }
            for step in event.plan.steps
        ]
        return self._ours("planned", reasoning=event.plan.reasoning, steps=steps)

    def _step_started(self, told: StepState) -> Iterator[StreamEvent]:
        yield self._ours("step.started", step=told.step.step_number)
        if told.words:
            yield from self._words(told)
        if told.step.prompt is not None:
            yield from self._picture_begun(told)

    def _words(self, told: StepState) -> Iterator[StreamEvent]:
        """A step's words come in one piece: the plan has them all."""
        from openai.types import responses as api

        self._items += 1
        message, text = self._answer.message(told), told.words
        begun = message.model_copy(update={"status": "in_progress", "content": []})
        place: dict[str, Any] = {"item_id": message.id, "content_index": 0}
        yield self._of_item(api.ResponseOutputItemAddedEvent, item=begun)
        yield self._of_item(api.ResponseContentPartAddedEvent, part=text_part(""), **place)
        yield self._of_item(api.ResponseTextDeltaEvent, delta=text, logprobs=[], **place)
        yield self._of_item(api.ResponseTextDoneEvent, text=text, logprobs=[], **place)
        yield self._of_item(api.ResponseContentPartDoneEvent, part=text_part(text), **place)
        yield self._of_item(api.ResponseOutputItemDoneEvent, item=message)

    def _picture_begun(self, told: StepState) -> Iterator[StreamEvent]:
        from openai.types import responses as api

        self._items += 1
        item = self._answer.picture(told)
        yield self._of_item(api.ResponseOutputItemAddedEvent, item=item)
        yield self._of_item(api.ResponseImageGenCallInProgressEvent, item_id=item.id)
        yield self._of_item(api.ResponseImageGenCallGeneratingEvent, item_id=item.id)

    def _drawn(self, event: ImageGenerated) -> Iterator[StreamEvent]:
        from openai.types.responses import ResponseImageGenCallPartialImageEvent

        item = self._picture_id
        yield self._of_item(
            ResponseImageGenCallPartialImageEvent,
            {item: event.image},
            item_id=item,
            partial_image_index=event.iteration,
            partial_image_b64="",
        )
        yield self._ours(
            "attempt.drawn",
            step=event.step.step_number,
            iteration=event.iteration,
            prompt=event.prompt,
            seed=event.seed,
            picture=event.image.sha256,
            seconds=event.call.seconds,
            item_id=item,
        )

    def _judged(self, event: AttemptJudged) -> StreamEvent:
        verdict = event.verdict
        return self._ours(
            "attempt.judged",
            step=event.draw.step.step_number,
            iteration=event.draw.iteration,
            accepted=verdict.accepted,
            reasoning=verdict.reasoning,
            refined_prompt=verdict.refined_prompt,
            seconds=event.call.seconds,
        )

    def _settled(self, event: StepAccepted | StepExhausted) -> Iterator[StreamEvent]:
        from openai.types.responses import ResponseImageGenCallCompletedEvent

        chosen = event.chosen
        if chosen:
            yield self._of_item(ResponseImageGenCallCompletedEvent, item_id=self._picture_id)
        yield self._picture_over()
        yield self._ours(
            "step.settled",
            step=event.step.step_number,
            accepted=isinstance(event, StepAccepted),
            iteration=chosen.draw.iteration if chosen else None,
        )

    def _picture_over(self) -> StreamEvent:
        from openai.types.responses import ResponseOutputItemDoneEvent

        told = self._told
        pictures = {self._picture_id: told.chosen.picture} if told.chosen else {}
        item = self._answer.picture(told)
        return self._of_item(ResponseOutputItemDoneEvent, pictures, item=item)

    def _over(self) -> Iterator[StreamEvent]:
        from openai.types import responses as api

        answer = self._answer
        if answer.story.steps and self._told.step.prompt is not None and not self._told.over:
            yield self._picture_over()
        record, response = answer.record(), answer.response()
        yield self._ours("finished", status=record["status"], wasted_draws=record["wasted_draws"])
        kinds: dict[str | None, type[BaseModel]] = {
            "completed": api.ResponseCompletedEvent,
            "failed": api.ResponseFailedEvent,
        }
        # Of what is stopped or cancelled its status says so; the API has no event of its own.
        kind = kinds.get(response.status, api.ResponseIncompleteEvent)
        yield self._event(kind, answer.pictures(), response=response)

    def _ours(self, name: str, **fields: object) -> StreamEvent:
        self._number += 1
        return StreamEvent(
            {"type": f"interleave.{name}", "sequence_number": self._number, **fields}
        )

    def _of_item(
        self, kind: "type[BaseModel]", pictures: Pictures | None = None, **fields: Any
    ) -> StreamEvent:
        return self._event(kind, pictures, output_index=self._items, **fields)

    def _event(
        self, kind: "type[BaseModel]", pictures: Pictures | None = None, **fields: Any
    ) -> StreamEvent:
        """An event of the API: its class says its type, and refuses another shape."""
        self._number += 1
        (name,) = get_args(kind.model_fields["type"].annotation)
        event = kind(type=name, sequence_number=self._number, **fields)
        return StreamEvent(event.model_dump(mode="json", exclude_unset=True), pictures or {})
