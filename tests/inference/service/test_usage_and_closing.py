"""Tokens and images of a generation's calls, and the message that closes its response."""

from datetime import UTC, datetime

from inference.events import (
    AttemptJudged,
    ImageGenerated,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TextEmitted,
    TrajectoryFailed,
    TrajectoryFinished,
)
from inference.generation.trajectory_view import TrajectoryView
from inference.roles import PlanStep, Verdict
from inference.service.response_builder import Usage, UsageModel, closing_text
from schemas.trajectories import ModelCallRow
from warehouse import EncodedImage

STARTED = datetime(2026, 1, 1, tzinfo=UTC)


def call(role, tokens_in=None, tokens_out=None, seconds=0.0):
    return ModelCallRow(
        call_id=role, asset="generations", shard="s", prompt_id="p", step_number=None,
        iteration=None, role=role, backend="b", model="m", request_hash="",
        input_tokens=tokens_in, output_tokens=tokens_out, images=0, seconds=seconds,
        cost_usd=None, cached=False, retries=0, error=None, started_at=STARTED,
    )  # fmt: skip


def test_tokens_are_those_of_planner_and_critic():
    generator = call("generator", 1000, 4000)
    calls = [call("planner", 100, 50), generator, call("critic", 300, 20), call("critic", 300, 30)]
    usage = Usage(2, calls)
    responses, chat = usage.responses(), usage.chat()
    assert (responses["input_tokens"], responses["output_tokens"]) == (700, 100)
    assert (chat["prompt_tokens"], chat["completion_tokens"]) == (700, 100)
    assert responses["total_tokens"] == chat["total_tokens"] == 800
    for given, drawn in (
        (responses["input_tokens_details"], responses["output_tokens_details"]),
        (chat["prompt_tokens_details"], chat["completion_tokens_details"]),
    ):
        assert (given["images"], drawn["images"]) == (2, 1)
    assert usage.by_role()["generator"] == UsageModel(
        calls=1, input_tokens=1000, output_tokens=4000
    )


def test_tokens_that_no_backend_counts_are_null_by_role():
    usage = Usage(0, [call("planner", seconds=7), call("critic", 10, None, seconds=3)])
    assert usage.by_role()["planner"].input_tokens is None
    assert usage.by_role()["critic"] == UsageModel(calls=1, input_tokens=10, output_tokens=None)
    assert usage.responses()["total_tokens"] == 10
    assert usage.last_call_ended_at == STARTED.timestamp() + 7


def test_without_calls_there_is_no_usage():
    usage = Usage()
    assert usage.responses() is None and usage.chat() is None and usage.by_role() == {}
    assert usage.last_call_ended_at == 0


def events_of(accepted, number=1):
    """A step whose only attempt is accepted, rejected, or rejected without a choice (None)."""
    step = PlanStep(number, "step", "words", "draw")
    image = EncodedImage.white((2, 2))
    draw = ImageGenerated(step, 0, "draw", 0, None, image, call("generator"))
    judged = AttemptJudged(draw, Verdict(bool(accepted), "", ""), call("critic"))
    end = (
        StepAccepted(step, judged)
        if accepted
        else StepExhausted(step, None if accepted is None else judged)
    )
    return [StepStarted(step), draw, judged, end]


def text_step():
    step = PlanStep(9, "end", auxiliary_text="The end.")
    return [StepStarted(step), TextEmitted(step, "The end.")]


def test_closing_texts():
    finished, once = TrajectoryFinished("complete"), "Done: 1 picture."
    rejected = "Done: 2 pictures. The critic rejected every attempt at step 2; it shows one."
    stopped = "Stopped at step 1: the critic rejected every attempt."
    for events, ending, expected in [
        (events_of(True), finished, once),
        ([*events_of(True), *events_of(False, 2)], finished, rejected),
        (events_of(None), finished, stopped),
        ([*events_of(True), *text_step()], finished, ""),
        ([], finished, ""),
        (events_of(True), TrajectoryFailed("broken", refused=False), ""),
    ]:
        state = TrajectoryView("request")
        for event in events:
            state.note(event)
        assert not closing_text(state)  # it runs
        state.note(ending)
        assert closing_text(state) == expected
