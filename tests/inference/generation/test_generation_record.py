"""Stories as JSON: what comes back is the story that was kept."""

import json

import pytest

from inference.events import StepAccepted, TrajectoryFinished
from inference.generation.agent_resolver import ResolvedRoles
from inference.generation.generation_record import (
    generation_record,
    stored_events,
    stored_generation,
)
from inference.generation.generation_state import GenerationState
from inference.generation.requests import GenerationOptions, GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.roles import Plan, PlanStep
from inference.settings import Limits
from tests.inference.scripted_world import (
    ScriptedCritic,
    ScriptedPlanner,
    picture,
    plan,
    reject,
    roles,
)

LIMITS = Limits(backoff_seconds=0, tries=1)


async def told(home, request, plan, **rejected):
    """Events, the story, and what would be kept of it."""
    critic = ScriptedCritic(verdicts={key: list(value) for key, value in rejected.items()})
    cast = ResolvedRoles(roles(planner=ScriptedPlanner(answer=lambda _: plan), critic=critic))
    story = GenerationState(request.text, request.pictures)
    events = []
    async with GenerationRunner(home, LIMITS) as teller:
        async for event in teller.tell(request, cast):
            events.append(event)
            story.note(event)
    return events, story, kept_as(story, cast, request)


def kept_as(story, cast, request, status=None, error=None):
    ending = story.ending
    record = {
        **generation_record(story),
        "generation_id": request.generation_id,
        "status": status or getattr(ending, "status", "in_progress"),
        "error": error,
        "versions": cast.names,
        "rules": request.rules.model_dump(),
        "wasted_draws": getattr(ending, "wasted_draws", 0),
    }
    return json.loads(json.dumps({"interleave": record}))


def essence(event):
    """What an event says, without its ledger row."""
    said = {k: v for k, v in vars(event).items() if k not in ("call", "step", "draw", "chosen")}
    step = getattr(event, "step", None) or getattr(getattr(event, "draw", None), "step", None)
    drawn = getattr(event, "draw", None) or getattr(getattr(event, "chosen", None), "draw", None)
    inner = vars(drawn) if drawn else {}
    return (
        type(event).__name__,
        step and (step.step_number, step.step_name, step.prompt),
        {k: v for k, v in said.items() if k != "plan"},
        (inner.get("iteration"), inner.get("image"), inner.get("source")),
    )


@pytest.mark.parametrize("candidates", [1, 2])
@pytest.mark.parametrize("on_exhausted", ["last", "stop"])
async def test_a_kept_story_comes_again_event_by_event(home, candidates, on_exhausted):
    rules = GenerationOptions(
        t_max=2, candidates=candidates, on_exhausted=on_exhausted, draw_ahead=False
    )
    request = GenerationRequest("a cat", (picture("given"),), rules)
    wrong = [reject("add a RED hat")] * candidates + [reject("no")] * candidates
    events, story, kept = await told(
        home, request, plan("draw a cat", "add a hat", "add a bird"), **{"add a hat": wrong}
    )
    again = list(stored_events(kept, home))
    assert [essence(each) for each in again] == [essence(each) for each in events]
    assert len(story.pictures) == (3 if on_exhausted == "last" else 1)
    back = stored_generation(kept, home)
    assert back.pictures == story.pictures and back.given == story.given
    assert [len(step.refused) for step in back.steps] == [len(s.refused) for s in story.steps]
    assert back.ending == story.ending


async def test_words_alone_are_kept(home):
    told_plan = Plan((PlanStep(1, "Describe", None, None, "A red house."),), "words only")
    _, story, kept = await told(home, GenerationRequest("describe"), told_plan)
    back = stored_generation(kept, home)
    assert [step.words for step in back.steps] == ["A red house."]
    assert back.plan.reasoning == "words only" and back.ending == TrajectoryFinished("complete", 0)
    assert not back.pictures and not story.pictures


async def test_a_story_cut_short_is_kept_as_far_as_it_got(home):
    """Interrupted between a picture and its verdict."""
    request = GenerationRequest("a cat")
    events, whole, _ = await told(home, request, plan("draw a cat", "add a hat"))
    cut = GenerationState("a cat")
    accepted = next(n for n, each in enumerate(events) if isinstance(each, StepAccepted))
    for event in events[: accepted + 3]:  # the next step has begun, and has a picture
        cut.note(event)
    cast = ResolvedRoles(roles())
    back = stored_generation(
        kept_as(cut, cast, request, "interrupted", "the server was stopped"), home
    )
    assert back.pictures == whole.pictures[:1]
    assert len(back.plan.steps) == 2 and len(back.steps) == 2
    assert back.steps[1].attempts[0].verdict is None and back.steps[1].chosen is None
    assert back.ending.reason == "the server was stopped" and not back.ending.refused
