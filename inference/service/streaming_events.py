"""Events of the Responses API from a generation's events, and our own `interleave.*` ones.

OpenAI's Node client throws at events that it does not know, so ours are for streams that ask for
them, see `EventsHeader`.
"""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import orjson
from fastapi import Header

from ..events import (
    AttemptJudged,
    ImageGenerated,
    PlanReady,
    RequestUnderstood,
    RunEvent,
    RunStarted,
    StepAccepted,
    StepExhausted,
    StepStarted,
)
from ..generation.trajectory_view import StepView
from .request_models import Json
from .response_builder import AttemptModel, ResponseBuilder, SimulationModel, text_part
from .run import GenerationRun

EventsHeader = Annotated[
    bool,
    Header(
        alias="Interleave-Events",
        description="`true`: the stream also has the events `interleave.*`: plan, attempts, "
        "verdicts. They count in `sequence_number`, so a stream that goes on with "
        "`starting_after` sends the same value",
    ),
]
"""The request header that asks for the events `interleave.*`."""

_OWN = "interleave."
_VERDICT = {"accepted", "reasoning", "refined_prompt"}  # fields of an attempt that was judged
_THREAD_BYTES = 500_000  # of images; more are encoded in a thread


class ResponseEventEncoder:
    """The listener that turns a generation's events into the API's, as server-sent events.

    The same events get the same sequence numbers every time; those up to `after` are left out.

    Args:
        own_events: also the events `interleave.*`, which then have numbers, too.
    """

    def __init__(self, run: GenerationRun, after: int = -1, own_events: bool = False) -> None:
        self._builder, self._after = ResponseBuilder(run), after
        self._own_events = own_events
        self._number = self._output_index = -1
        self._image_bytes = 0

    def opening(self) -> bytes:
        """The API's events before the generation's first one."""
        response = self._builder.response()
        kinds = ("response.created", "response.queued")
        return self._encode({"type": kind, "response": response} for kind in kinds)

    async def encode(self, event: RunEvent) -> bytes:
        """The API's events for the generation's next one."""
        if isinstance(event, ImageGenerated):
            self._image_bytes += len(event.image.data)
        if self._image_bytes > _THREAD_BYTES or self._builder.image_tool.output_format:
            return await asyncio.to_thread(self._encode, self._events_for(event))
        return self._encode(self._events_for(event))

    def _encode(self, events: Iterator[Json]) -> bytes:
        return b"".join(map(self._encode_event, filter(self._is_wanted, events)))

    def _is_wanted(self, event: Json) -> bool:
        return self._own_events or not event["type"].startswith(_OWN)

    def _encode_event(self, event: Json) -> bytes:
        """The event with its number; fields are sorted, as those of OpenAI's own classes are."""
        self._number += 1
        if self._number <= self._after:
            return b""
        fields = dict(sorted((event | {"sequence_number": self._number}).items()))
        return b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(fields) + b"\n\n"

    def _events_for(self, event: RunEvent) -> Iterator[Json]:
        self._builder.note(event)
        match event:
            case RunStarted():
                yield {"type": "response.in_progress", "response": self._builder.response()}
            case RequestUnderstood():
                simulation = SimulationModel.model_validate(event.scope)
                yield self._own_event("simulated", **simulation.model_dump())
            case PlanReady():
                yield self._plan_ready(event)
            case StepStarted():
                yield from self._step_started()
            case ImageGenerated():
                yield from self._image_generated(event)
            case AttemptJudged():
                yield self._attempt_judged(event)
            case StepAccepted() | StepExhausted():
                yield from self._step_finished(event)
            case _ if self._builder.state.ending:
                yield from self._ended()

    @property
    def _step(self) -> StepView:
        return self._builder.state.steps[-1]

    def _plan_ready(self, event: PlanReady) -> Json:
        steps = [
            {
                "number": step.step_number,
                "name": step.step_name,
                "text": StepView(step).text,
                "has_image": step.prompt is not None,
            }
            for step in event.plan.steps
        ]
        return self._own_event("planned", reasoning=event.plan.reasoning, steps=steps)

    def _step_started(self) -> Iterator[Json]:
        yield self._own_event("step.started", step=self._step.number)
        if self._step.text:
            yield from self._message(self._builder.message_item(self._step))
        if self._step.prompt is not None:
            yield from self._image_started()

    def _message(self, message: Json) -> Iterator[Json]:
        """A text is one delta: the plan has all of it."""
        self._output_index += 1
        text = message["content"][0]["text"]
        ids = {"item_id": message["id"], "content_index": 0}
        started = message | {"status": "in_progress", "content": []}
        yield self._item_event("output_item.added", item=started)
        yield self._item_event("content_part.added", part=text_part(""), **ids)
        yield self._item_event("output_text.delta", delta=text, logprobs=[], **ids)
        yield self._item_event("output_text.done", text=text, logprobs=[], **ids)
        yield self._item_event("content_part.done", part=text_part(text), **ids)
        yield self._item_event("output_item.done", item=message)

    def _image_started(self) -> Iterator[Json]:
        self._output_index += 1
        item = self._builder.image_item(self._step)
        yield self._item_event("output_item.added", item=item)
        yield self._item_event("image_generation_call.in_progress", item_id=item["id"])
        yield self._item_event("image_generation_call.generating", item_id=item["id"])

    def _image_generated(self, event: ImageGenerated) -> Iterator[Json]:
        item_id = self._builder.image_item(self._step)["id"]
        if self._builder.image_tool.shows_attempt(event.iteration):
            yield self._item_event(
                "image_generation_call.partial_image",
                item_id=item_id,
                partial_image_index=event.iteration,
                partial_image_b64=self._builder.image_tool.encode(event.image),
            )
        attempt = AttemptModel.model_validate(self._step.attempts[-1])
        fields = attempt.model_dump(exclude=_VERDICT)
        yield self._own_event(
            "attempt.drawn", step=event.step.step_number, **fields, item_id=item_id
        )

    def _attempt_judged(self, event: AttemptJudged) -> Json:
        return self._own_event(
            "attempt.judged",
            step=event.draw.step.step_number,
            iteration=event.draw.iteration,
            **{name: getattr(event.verdict, name) for name in _VERDICT},
            seconds=event.call.seconds,
        )

    def _step_finished(self, event: StepAccepted | StepExhausted) -> Iterator[Json]:
        chosen, item = event.chosen, self._builder.image_item(self._step, with_image=True)
        if chosen:
            yield self._item_event("image_generation_call.completed", item_id=item["id"])
        yield self._item_event("output_item.done", item=item)
        yield self._own_event(
            "step.settled",
            step=event.step.step_number,
            accepted=isinstance(event, StepAccepted),
            iteration=chosen.draw.iteration if chosen else None,
        )

    def _ended(self) -> Iterator[Json]:
        builder = self._builder
        if builder.state.steps and self._step.prompt is not None and not self._step.finished:
            yield self._item_event("output_item.done", item=builder.image_item(self._step))
        if closing := builder.closing_item():
            yield from self._message(closing)
        yield self._own_event("finished", status=builder.status, wasted_draws=builder.wasted_draws)
        response = builder.response(with_images=True)
        # The API has no event for cancelled responses; their status says it.
        kind = response["status"] if response["status"] != "cancelled" else "incomplete"
        yield {"type": f"response.{kind}", "response": response}

    def _own_event(self, name: str, **fields: object) -> Json:
        return {"type": f"{_OWN}{name}", **fields}

    def _item_event(self, name: str, **fields: object) -> Json:
        return {"type": f"response.{name}", "output_index": self._output_index, **fields}
