"""Events of the Responses API, and our own `interleave.*` ones, from a generation's events."""

import asyncio
import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import orjson
from openai.types import chat
from openai.types import responses as api
from pydantic import BaseModel

from warehouse import EncodedImage

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
from ...generation.event_log import RunEvent, RunStarted, RunTerminated
from ...generation.generation_state import StepState
from ..request_parsing import RequestEcho
from .response_builder import ResponseBuilder, text_part

Json = dict[str, Any]
# By id of the output item.
Images = Mapping[str, EncodedImage]

_PARTIAL_IMAGE = "response.image_generation_call.partial_image"
_THREAD_BYTES = 500_000  # larger images are encoded in a thread


def warm_up() -> None:
    """Build the validators of the API's classes, which takes a second, before the first request."""
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
    """An event as JSON; `images` are filled in when it is sent."""

    payload: Json
    images: Images = field(default_factory=dict)

    @property
    def type(self) -> str:
        return str(self.payload["type"])

    @property
    def number(self) -> int:
        return int(self.payload["sequence_number"])


async def encode_events(events: Iterable[StreamEvent], after: int) -> bytes:
    """Server-sent events; those up to sequence number `after` are left out."""
    return b"".join([await _encode_event(event) for event in events if event.number > after])


async def encode_json(payload: Json, images: Images) -> bytes:
    """An event or a Response as JSON, with the images of its items in base64."""
    if sum(len(image.data) for image in images.values()) > _THREAD_BYTES:
        return await asyncio.to_thread(_encode_json, payload, images)
    return _encode_json(payload, images)


class ResponseEventBuilder:
    """The listener that turns a generation's events into the API's.

    The same events get the same sequence numbers every time.
    """

    def __init__(self, request: RequestEcho) -> None:
        self._builder, self._request = ResponseBuilder(request), request
        self._number = -1
        self._output_index = -1

    def opening_events(self) -> Iterator[StreamEvent]:
        """The API's events before the generation's first one."""
        for kind in (api.ResponseCreatedEvent, api.ResponseQueuedEvent):
            yield self._event(kind, response=self._builder.response())

    def events_for(self, event: RunEvent) -> Iterator[StreamEvent]:
        """The API's events for the generation's next one."""
        self._builder.note(event)
        match event:
            case RunStarted():
                yield self._event(api.ResponseInProgressEvent, response=self._builder.response())
            case PlanReady():
                yield self._plan_ready(event)
            case StepStarted():
                yield from self._step_started(self._step)
            case ImageGenerated():
                yield from self._image_generated(event)
            case AttemptJudged():
                yield self._attempt_judged(event)
            case StepAccepted() | StepExhausted():
                yield from self._step_finished(event)
            case TrajectoryFinished() | TrajectoryFailed() | RunTerminated():
                yield from self._ended()

    @property
    def _step(self) -> StepState:
        return self._builder.state.steps[-1]

    @property
    def _image_id(self) -> str:
        return self._request.image_id(self._step.step.step_number)

    def _plan_ready(self, event: PlanReady) -> StreamEvent:
        steps = [
            {
                "number": step.step_number,
                "name": step.step_name,
                "words": StepState(step).text,
                "draws": step.prompt is not None,
            }
            for step in event.plan.steps
        ]
        return self._own_event("planned", reasoning=event.plan.reasoning, steps=steps)

    def _step_started(self, step: StepState) -> Iterator[StreamEvent]:
        yield self._own_event("step.started", step=step.step.step_number)
        if step.text:
            yield from self._message(step)
        if step.step.prompt is not None:
            yield from self._image_started(step)

    def _message(self, step: StepState) -> Iterator[StreamEvent]:
        """A step's text is one delta: the plan has all of it."""
        self._output_index += 1
        message, text = self._builder.message_item(step), step.text
        started = message.model_copy(update={"status": "in_progress", "content": []})
        ids: dict[str, Any] = {"item_id": message.id, "content_index": 0}
        yield self._item_event(api.ResponseOutputItemAddedEvent, item=started)
        yield self._item_event(api.ResponseContentPartAddedEvent, part=text_part(""), **ids)
        yield self._item_event(api.ResponseTextDeltaEvent, delta=text, logprobs=[], **ids)
        yield self._item_event(api.ResponseTextDoneEvent, text=text, logprobs=[], **ids)
        yield self._item_event(api.ResponseContentPartDoneEvent, part=text_part(text), **ids)
        yield self._item_event(api.ResponseOutputItemDoneEvent, item=message)

    def _image_started(self, step: StepState) -> Iterator[StreamEvent]:
        self._output_index += 1
        item = self._builder.image_item(step)
        yield self._item_event(api.ResponseOutputItemAddedEvent, item=item)
        yield self._item_event(api.ResponseImageGenCallInProgressEvent, item_id=item.id)
        yield self._item_event(api.ResponseImageGenCallGeneratingEvent, item_id=item.id)

    def _image_generated(self, event: ImageGenerated) -> Iterator[StreamEvent]:
        item_id = self._image_id
        yield self._item_event(
            api.ResponseImageGenCallPartialImageEvent,
            {item_id: event.image},
            item_id=item_id,
            partial_image_index=event.iteration,
            partial_image_b64="",
        )
        yield self._own_event(
            "attempt.drawn",
            step=event.step.step_number,
            iteration=event.iteration,
            prompt=event.prompt,
            seed=event.seed,
            picture=event.image.sha256,
            seconds=event.call.seconds,
            item_id=item_id,
        )

    def _attempt_judged(self, event: AttemptJudged) -> StreamEvent:
        verdict = event.verdict
        return self._own_event(
            "attempt.judged",
            step=event.draw.step.step_number,
            iteration=event.draw.iteration,
            accepted=verdict.accepted,
            reasoning=verdict.reasoning,
            refined_prompt=verdict.refined_prompt,
            seconds=event.call.seconds,
        )

    def _step_finished(self, event: StepAccepted | StepExhausted) -> Iterator[StreamEvent]:
        chosen = event.chosen
        if chosen:
            yield self._item_event(api.ResponseImageGenCallCompletedEvent, item_id=self._image_id)
        yield self._image_done()
        yield self._own_event(
            "step.settled",
            step=event.step.step_number,
            accepted=isinstance(event, StepAccepted),
            iteration=chosen.draw.iteration if chosen else None,
        )

    def _image_done(self) -> StreamEvent:
        step = self._step
        images = {self._image_id: step.chosen.image} if step.chosen else {}
        item = self._builder.image_item(step)
        return self._item_event(api.ResponseOutputItemDoneEvent, images, item=item)

    def _ended(self) -> Iterator[StreamEvent]:
        builder = self._builder
        if builder.state.steps and self._step.step.prompt is not None and not self._step.finished:
            yield self._image_done()
        interleave, response = builder.interleave(), builder.response()
        yield self._own_event(
            "finished", status=interleave["status"], wasted_draws=interleave["wasted_draws"]
        )
        kinds: dict[str | None, type[BaseModel]] = {
            "completed": api.ResponseCompletedEvent,
            "failed": api.ResponseFailedEvent,
        }
        # The API has no event for cancelled responses; their status says it.
        kind = kinds.get(response.status, api.ResponseIncompleteEvent)
        yield self._event(kind, builder.images(), response=response)

    def _own_event(self, name: str, **fields: object) -> StreamEvent:
        self._number += 1
        payload = {"type": f"interleave.{name}", "sequence_number": self._number, **fields}
        return StreamEvent(payload)

    def _item_event(
        self, kind: type[BaseModel], images: Images | None = None, **fields: Any
    ) -> StreamEvent:
        return self._event(kind, images, output_index=self._output_index, **fields)

    def _event(
        self, kind: type[BaseModel], images: Images | None = None, **fields: Any
    ) -> StreamEvent:
        """An event of the API; its class has the type, and validates the fields."""
        self._number += 1
        (name,) = get_args(kind.model_fields["type"].annotation)
        event = kind(type=name, sequence_number=self._number, **fields)
        return StreamEvent(event.model_dump(mode="json", exclude_unset=True), images or {})


async def _encode_event(event: StreamEvent) -> bytes:
    data = await encode_json(event.payload, event.images)
    return b"event: " + event.type.encode() + b"\ndata: " + data + b"\n\n"


def _encode_json(payload: Json, images: Images) -> bytes:
    return orjson.dumps(_with_images(payload, images) if images else payload)


def _with_images(payload: Json, images: Images) -> Json:
    if payload.get("type") == _PARTIAL_IMAGE:
        return payload | {"partial_image_b64": _base64(images[payload["item_id"]])}
    if "item" in payload:
        return payload | {"item": _item_with_image(payload["item"], images)}
    if "response" in payload:
        return payload | {"response": _with_images(payload["response"], images)}
    if "output" in payload:
        return payload | {"output": [_item_with_image(item, images) for item in payload["output"]]}
    return payload


def _item_with_image(item: Json, images: Images) -> Json:
    image = images.get(item["id"])
    return item | {"result": _base64(image)} if image else item


def _base64(image: EncodedImage) -> str:
    return base64.b64encode(image.data).decode()
