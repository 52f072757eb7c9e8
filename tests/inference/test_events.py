"""Events as JSON lines: every class comes back equal, with its images loaded by sha256."""

import json
from datetime import UTC, datetime
from typing import get_args

from inference.events import (
    AttemptJudged,
    ImageGenerated,
    PlanReady,
    RequestUnderstood,
    RunEvent,
    RunStarted,
    RunTerminated,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TextEmitted,
    TrajectoryFailed,
    TrajectoryFinished,
    dump_events,
    load_events,
)
from inference.roles import RequestScope, Verdict
from schemas.trajectories import ModelCallRow
from tests.inference.scripted_world import plan, tiny_image

PLAN = plan("Draw a cat", None)
STEP = PLAN.steps[0]
CALL = ModelCallRow(
    call_id="c",
    asset="generations",
    shard="s",
    prompt_id="p",
    step_number=1,
    iteration=0,
    role="critic",
    backend="scripted",
    model="1",
    request_hash="h",
    input_tokens=1,
    output_tokens=None,
    images=2,
    seconds=0.1,
    cost_usd=None,
    cached=False,
    retries=0,
    error=None,
    started_at=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
)
FIRST = ImageGenerated(STEP, 0, "Draw a cat", 2**31 - 1, None, tiny_image("cat"), CALL)
EDIT = ImageGenerated(
    STEP, 1, "Draw a 'cat' \N{CAT}", 7, tiny_image("cat"), tiny_image("hat"), CALL
)
JUDGED = AttemptJudged(EDIT, Verdict(False, "a hat", "no hat"), CALL)
EVENTS = [
    RequestUnderstood(
        RequestScope("A demo world.", None, ("dragon",), ("A photo.",), ("Draw a cat",))
    ),
    PlanReady(PLAN, CALL),
    StepStarted(STEP),
    TextEmitted(PLAN.steps[1], "words"),
    FIRST,
    EDIT,
    JUDGED,
    StepAccepted(STEP, JUDGED),
    StepExhausted(STEP, JUDGED),
    StepExhausted(STEP, None),
    TrajectoryFinished("exhausted", wasted_draws=2),
    TrajectoryFailed("no plan", refused=True),
    RunStarted({"planner": "scripted/1"}),
    RunTerminated("interrupted", "the service was stopped", resumable=False),
]


def test_an_event_is_equal_after_a_round_trip_through_json(home):
    assert {type(event) for event in EVENTS} == set(get_args(RunEvent)), "all classes"
    for event in EVENTS:
        assert load_events(dump_events([event]), home.images) == [event]


def test_a_record_holds_the_sha256_of_its_images():
    record = json.loads(dump_events([EDIT]))
    assert record["event"] == "ImageGenerated"
    assert record["source"] == tiny_image("cat").sha256
    assert record["image"] == tiny_image("hat").sha256
