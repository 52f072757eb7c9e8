"""Reads responses that older homes stored: the Response as JSON, instead of events.

Its field `interleave` says what happened at each step, from which the events follow. Model calls
have only what it knows of them; the ledger has the rest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from schemas.trajectories import ModelCallRow, Role
from warehouse import EncodedImage, ImageStore

from ..engine.hashing import stable_hash
from ..events import (
    AttemptJudged,
    Event,
    ImageGenerated,
    PlanReady,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TextEmitted,
    TrajectoryFailed,
    TrajectoryFinished,
)
from ..generation.event_log import LazyImage, RunEvent, RunStarted, RunTerminated, dump_events
from ..roles import Plan, PlanStep, Verdict
from .responses.response_builder import RESUME_HINT

Json = dict[str, Any]

_REQUEST_FIELDS = (
    "background",
    "created_at",
    "instructions",
    "metadata",
    "model",
    "previous_response_id",
    "store",
)


@dataclass(frozen=True)
class ConvertedResponse:
    """See `StoredResponse`."""

    status: str
    request: Json
    events: bytes


def convert_response(response: Mapping[str, Any], images: ImageStore) -> ConvertedResponse:
    """A stored Response as its request and events."""
    record = response["interleave"]
    request = {
        "generation_id": record["generation_id"],
        "text": record["text"],
        "input_images": record["given"],
        "options": record["rules"],
        "fields": {name: response[name] for name in _REQUEST_FIELDS if name in response},
    }
    events = _LegacyReplay(record, response.get("usage") or {}, images).events()
    return ConvertedResponse(record["status"], request, dump_events(events))


class _LegacyReplay:
    def __init__(self, record: Mapping[str, Any], usage: Json, images: ImageStore) -> None:
        self._record, self._usage, self._images = record, usage, images
        self._source = self._image(record["given"][-1]) if record["given"] else None
        self._candidates = record["rules"].get("candidates", 1)

    def events(self) -> Iterator[RunEvent]:
        record = self._record
        if record["versions"]:
            yield RunStarted(record["versions"])
        if record["steps"]:
            plan = Plan(tuple(map(_plan_step, record["steps"])), record["reasoning"])
            # The tokens of all calls, of which only the sum was stored.
            yield PlanReady(plan, self._call("planner", usage=self._usage))
        for step in record["steps"]:
            if step["begun"]:
                yield from self._step(_plan_step(step), step)
        yield from self._ending()

    def _ending(self) -> Iterator[RunEvent]:
        status, error = self._record["status"], self._record["error"] or ""
        if status in ("cancelled", "interrupted"):
            reason = error.removesuffix(RESUME_HINT)
            yield RunTerminated(status, reason, resumable=reason != error)
        elif status in ("refused", "failed"):
            yield TrajectoryFailed(error, refused=status == "refused")
        elif status not in ("queued", "in_progress"):
            yield TrajectoryFinished(status, self._record["wasted_draws"])

    def _step(self, step: PlanStep, record: Json) -> Iterator[Event]:
        yield StepStarted(step)
        if step.prompt is None:
            yield TextEmitted(step, record["words"])
            return
        judged: list[AttemptJudged] = []
        for attempts in self._rounds(record["attempts"]):
            draws = [self._draw(step, attempt) for attempt in attempts]
            yield from draws
            verdicts = self._verdicts(draws, attempts)
            yield from verdicts
            judged += verdicts
        if record["accepted"] is not None:
            yield self._finish_step(step, record, judged)

    def _rounds(self, attempts: Sequence[Json]) -> list[Sequence[Json]]:
        """The candidates of each prompt: all were generated before the first was judged."""
        rounds = groupby(attempts, lambda each: each["iteration"] // self._candidates)
        return [list(each) for _, each in rounds]

    def _draw(self, step: PlanStep, attempt: Json) -> ImageGenerated:
        return ImageGenerated(
            step=step,
            iteration=attempt["iteration"],
            prompt=attempt["prompt"],
            seed=attempt["seed"],
            source=self._source,
            image=self._image(attempt["picture"]),
            call=self._call("generator", step.step_number, attempt),
        )

    def _verdicts(
        self, draws: Sequence[ImageGenerated], attempts: Sequence[Json]
    ) -> list[AttemptJudged]:
        return [
            AttemptJudged(
                draw,
                Verdict(attempt["accepted"], attempt["refined_prompt"], attempt["reasoning"]),
                self._call("critic", draw.step.step_number, attempt),
            )
            for draw, attempt in zip(draws, attempts, strict=True)
            if attempt["accepted"] is not None
        ]

    def _finish_step(
        self, step: PlanStep, record: Json, judged: Sequence[AttemptJudged]
    ) -> StepAccepted | StepExhausted:
        chosen = next((e for e in judged if e.draw.iteration == record["iteration"]), None)
        self._source = chosen.draw.image if chosen else self._source
        if chosen and record["accepted"]:
            return StepAccepted(step, chosen)
        return StepExhausted(step, chosen)

    def _image(self, sha256: str) -> EncodedImage:
        return LazyImage(self._images, sha256)

    def _call(
        self,
        role: Role,
        step_number: int | None = None,
        attempt: Json | None = None,
        usage: Json | None = None,
    ) -> ModelCallRow:
        generation_id, usage = self._record["generation_id"], usage or {}
        iteration = attempt["iteration"] if attempt else None
        backend, _, model = self._record["versions"].get(role, "").partition("/")
        return ModelCallRow(
            call_id=stable_hash("legacy", generation_id, role, step_number, iteration),
            asset="generations",
            shard=generation_id,
            prompt_id=stable_hash("request", self._record["text"], self._record["given"]),
            step_number=step_number,
            iteration=iteration,
            role=role,
            backend=backend,
            model=model,
            request_hash="",
            input_tokens=usage.get("input_tokens"),
            output_tokens=usage.get("output_tokens"),
            images=0,
            seconds=attempt["seconds"] if attempt and role == "generator" else 0.0,
            cost_usd=None,
            cached=True,
            retries=0,
            error=None,
            started_at=datetime.fromtimestamp(0, UTC),
        )


def _plan_step(record: Json) -> PlanStep:
    text, prompt = record["words"] or None, record["prompt"]
    if prompt is None:
        return PlanStep(record["number"], record["name"], None, None, text)
    return PlanStep(record["number"], record["name"], text, prompt)
