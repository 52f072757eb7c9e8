"""The event log: what is loaded from it are the events that were emitted."""

import json
from typing import get_args

import pytest

from inference.events import (
    AttemptJudged,
    ImageGenerated,
    LazyImage,
    RequestUnderstood,
    RunEvent,
    RunStarted,
    RunTerminated,
    StepAccepted,
    StepExhausted,
    TrajectoryFailed,
    dump_events,
    load_events,
)
from inference.generation.requests import GenerationOptions, GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.generation.trajectory_view import TrajectoryView
from inference.roles import RequestScope
from inference.settings import Limits
from schemas import BadImageError, StorageError
from tests.inference.scripted_world import (
    ScriptedCritic,
    ScriptedPlanner,
    plan,
    reject,
    roles,
    tiny_image,
)

OPTIONS = GenerationOptions(t_max=2, candidates=2, on_exhausted="stop")


async def generate(home) -> tuple[GenerationRequest, list]:
    """A generation whose third step has no accepted attempt."""
    rejections = {"add a 'hat' \N{CAT}": [reject("add a RED hat")] * 2 + [reject("no")] * 2}
    answer = plan("draw a cat", None, *rejections, "add a bird")
    planner = ScriptedPlanner(answer=lambda _: answer)
    resolved = roles(planner=planner, critic=ScriptedCritic(verdicts=rejections))
    request = GenerationRequest("a cat", (tiny_image("given"),), OPTIONS)
    async with GenerationRunner(home, Limits(backoff_seconds=0, tries=1)) as runner:
        return request, [event async for event in runner.run(request, resolved)]


def state_of(request, events) -> TrajectoryView:
    state = TrajectoryView(request.text, request.images)
    for event in events:
        state.note(event)
    return state


async def test_events_are_loaded_as_they_were_emitted(home):
    request, emitted = await generate(home)
    accepted = next(event for event in emitted if isinstance(event, StepAccepted))
    scope = RequestScope("A demo world.", None, ("dragon",), ("A photo.",), ("Draw a cat",))
    events = [
        RunStarted({"planner": "scripted/1"}),
        RequestUnderstood(scope),
        *emitted,
        StepExhausted(accepted.step, accepted.chosen),
        TrajectoryFailed("no plan", refused=True),
        RunTerminated("interrupted", "the service was stopped", resumable=False),
    ]
    assert {type(event) for event in events} == set(get_args(RunEvent)), "all classes"
    loaded = load_events(dump_events(events), home.images)
    assert loaded == events
    assert state_of(request, loaded) == state_of(request, events)
    images = [event.image for event in loaded if isinstance(event, ImageGenerated)]
    assert len(images) == 6 and all(image.image.size == (2, 2) for image in images)


async def test_a_record_holds_the_sha256_of_its_images(home):
    _, events = await generate(home)
    draw = next(event for event in events if isinstance(event, ImageGenerated))
    record = json.loads(dump_events([draw]))
    assert record["event"] == "ImageGenerated"
    assert record["source"] == tiny_image("given").sha256
    assert record["image"] == draw.image.sha256


async def test_a_log_that_ends_between_a_draw_and_its_verdict(home):
    request, events = await generate(home)
    first_verdict = next(n for n, e in enumerate(events) if isinstance(e, AttemptJudged))
    loaded = load_events(dump_events(events[:first_verdict]), home.images)
    (step,) = state_of(request, loaded).steps
    assert not step.finished and step.chosen is None
    assert [attempt.verdict for attempt in step.attempts] == [None, None]


async def test_image_bytes_are_read_when_they_are_used(home):
    image = LazyImage(home.images, tiny_image("cat").sha256)
    assert image == tiny_image("cat") and tiny_image("cat") == image and image != tiny_image("dog")
    with pytest.raises(BadImageError, match="is missing"):
        _ = image.data
    home.images.put(tiny_image("cat"))
    assert image.data == tiny_image("cat").data and hash(image) == hash(tiny_image("cat"))


@pytest.mark.parametrize(
    "log", [b"{", b'{"event": "Other"}', b'{"event": "TrajectoryFailed", "reason": "why"}']
)
def test_a_damaged_log_is_an_error(home, log):
    with pytest.raises(StorageError, match="a stored event cannot be read"):
        load_events(log, home.images)
