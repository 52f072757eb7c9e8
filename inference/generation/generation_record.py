"""A story as JSON, and back: pictures by their sha256, bytes from the home.

Of a kept story the same events come again, in the same order, so that a listener cannot tell it
from one that is being told.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from schemas.trajectories import ModelCallRow, Role
from warehouse import EncodedImage, Home

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
from ..roles import Plan, PlanStep, Verdict
from .generation_state import AttemptState, GenerationState, StepState

Record = dict[str, Any]

_FINISHED = ("complete", "exhausted", "stopped")
_CUT_SHORT = ("refused", "failed", "cancelled", "interrupted")


def generation_record(story: GenerationState) -> Record:
    """What a story has come to: `text`, `given`, `reasoning` and `steps`, planned ones included."""
    plan = story.plan or Plan(())
    begun = {each.step.step_number: each for each in story.steps}
    return {
        "text": story.text,
        "given": [picture.sha256 for picture in story.given],
        "reasoning": plan.reasoning,
        "steps": [_step(step, begun.get(step.step_number)) for step in plan.steps],
    }


def stored_generation(response: Mapping[str, Any], home: Home) -> GenerationState:
    """The story of a Response that `Library` kept.

    Raises:
        BadImageError: one of its pictures is not there any more.
    """
    record = response["interleave"]
    given = tuple(home.images.get(name) for name in record.get("given", ()))
    story = GenerationState(record.get("text", ""), given)
    for event in stored_events(response, home):
        story.note(event)
    return story


def stored_events(response: Mapping[str, Any], home: Home) -> Iterator[Event]:
    """The events that made the story of a kept Response; the last one is missing while it is told.

    Raises:
        BadImageError: see `stored_generation`.
    """
    yield from EventReplay(response["interleave"], home).events()


def _step(step: PlanStep, told: StepState | None) -> Record:
    told = told or StepState(step)
    chosen = told.chosen
    refused = False if told.over and step.prompt is not None else None
    return {
        "number": step.step_number,
        "name": step.step_name,
        "words": told.words,
        "prompt": step.prompt,
        "begun": told.over or bool(told.attempts),
        "picture": chosen.picture.sha256 if chosen else None,
        "iteration": chosen.draw.iteration if chosen else None,
        "accepted": chosen.verdict.accepted if chosen and chosen.verdict else refused,
        "attempts": [_attempt(attempt) for attempt in told.attempts],
    }


def _attempt(attempt: AttemptState) -> Record:
    drawn, verdict = attempt.draw, attempt.verdict
    return {
        "iteration": drawn.iteration,
        "prompt": drawn.prompt,
        "seed": drawn.seed,
        "picture": drawn.image.sha256,
        "seconds": drawn.call.seconds,
        "accepted": verdict.accepted if verdict else None,
        "reasoning": verdict.reasoning if verdict else None,
        "refined_prompt": verdict.refined_prompt if verdict else None,
    }


class EventReplay:
    """The events of a record."""

    def __init__(self, record: Mapping[str, Any], home: Home) -> None:
        self._record, self._home = record, home
        given = record.get("given", ())
        self._last: EncodedImage | None = home.images.get(given[-1]) if given else None
        self._candidates = record.get("rules", {}).get("candidates", 1)

    def events(self) -> Iterator[Event]:
        record, steps = self._record, self._record.get("steps", ())
        if steps:
            planned = Plan(tuple(map(_plan_step, steps)), record.get("reasoning", ""))
            yield PlanReady(planned, self._call("planner"))
        for step in steps:
            if step["begun"]:
                yield from self._told(_plan_step(step), step)
        if record["status"] in _FINISHED:
            yield TrajectoryFinished(record["status"], record.get("wasted_draws", 0))
        if record["status"] in _CUT_SHORT:
            reason = record.get("error") or f"it was {record['status']}"
            yield TrajectoryFailed(reason, refused=record["status"] == "refused")

    def _told(self, step: PlanStep, record: Record) -> Iterator[Event]:
        yield StepStarted(step)
        if step.prompt is None:
            yield TextEmitted(step, record["words"])
            return
        judged: list[AttemptJudged] = []
        for attempts in self._together(record["attempts"]):
            drawn = [self._drawn(step, attempt) for attempt in attempts]
            yield from drawn
            verdicts = self._judged(drawn, attempts)
            yield from verdicts
            judged += verdicts
        if record["accepted"] is not None:
            yield self._settled(step, record, judged)

    def _together(self, attempts: Sequence[Record]) -> list[Sequence[Record]]:
        """The candidates of each prompt: all are drawn before the first is judged."""
        rounds = groupby(attempts, lambda each: each["iteration"] // self._candidates)
        return [list(each) for _, each in rounds]

    def _drawn(self, step: PlanStep, attempt: Record) -> ImageGenerated:
        picture = self._home.images.get(attempt["picture"])
        call = self._call("generator", step.step_number, attempt)
        what = (attempt["iteration"], attempt["prompt"], attempt["seed"])
        return ImageGenerated(step, *what, self._last, picture, call)

    def _judged(
        self, drawn: Sequence[ImageGenerated], attempts: Sequence[Record]
    ) -> list[AttemptJudged]:
        return [
            AttemptJudged(
                each, _verdict(attempt), self._call("critic", each.step.step_number, attempt)
            )
            for each, attempt in zip(drawn, attempts, strict=True)
            if attempt["accepted"] is not None
        ]

    def _settled(
        self, step: PlanStep, record: Record, judged: Sequence[AttemptJudged]
    ) -> StepAccepted | StepExhausted:
        chosen = next((e for e in judged if e.draw.iteration == record["iteration"]), None)
        self._last = chosen.draw.image if chosen else self._last
        if chosen and record["accepted"]:
            return StepAccepted(step, chosen)
        return StepExhausted(step, chosen)

    def _call(
        self, role: Role, step_number: int | None = None, attempt: Record | None = None
    ) -> ModelCallRow:
        """What is known of a call; the ledger has the rest."""
        generation_id = self._record["generation_id"]
        iteration = attempt["iteration"] if attempt else None
        backend, _, model = self._record["versions"].get(role, "").partition("/")
        return ModelCallRow(
            call_id=stable_hash("kept", generation_id, role, step_number, iteration),
            asset="generations",
            shard=generation_id,
            prompt_id=stable_hash("request", self._record["text"], self._record["given"]),
            step_number=step_number,
            iteration=iteration,
            role=role,
            backend=backend,
            model=model,
            request_hash="",
            input_tokens=None,
            output_tokens=None,
            images=0,
            seconds=attempt["seconds"] if attempt and role == "generator" else 0.0,
            cost_usd=None,
            cached=True,
            retries=0,
            error=None,
            started_at=datetime.fromtimestamp(0, UTC),
        )


def _plan_step(record: Record) -> PlanStep:
    words, prompt = record["words"] or None, record["prompt"]
    if prompt is None:
        return PlanStep(record["number"], record["name"], None, None, words)
    return PlanStep(record["number"], record["name"], words, prompt)


def _verdict(attempt: Record) -> Verdict:
    return Verdict(attempt["accepted"], attempt["refined_prompt"], attempt["reasoning"])
