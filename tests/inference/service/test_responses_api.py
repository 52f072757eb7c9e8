"""The Responses API, with the official client."""

import time

import openai
import pytest

from inference.generation.requests import GenerationRequest
from schemas.generations import GENERATIONS
from tests.inference.scripted_world import ScriptedPlanner, plan, roles
from tests.inference.service.running_service import (
    HOUSE,
    OWN_EVENTS,
    REDRAWN,
    SNOWMAN,
    data_uri,
    decode_image,
    images_of,
    running_service,
    wait_until,
)
from warehouse.sql import query

TABLES = ("generations", "plans", "trajectories", "attempts", "model_calls")
LEDGER_ONLY = {"model_calls"}


def stream_events(client, **request):
    """Events of a stream; those of the API are valid, which the client itself does not check."""
    with client.responses.create(stream=True, extra_headers=OWN_EVENTS, **request) as stream:
        events = list(stream)
    for event in events:
        if event.type.startswith("response."):
            assert type(event).__name__.startswith("Response"), event  # as unknown ones are not
            type(event).model_validate(event.model_dump())
    return events


def test_a_response_is_text_and_images_in_turn(client):
    before = int(time.time())
    response = client.responses.create(model="interleave", input=SNOWMAN, metadata={"a": "b"})
    assert (response.status, response.error, response.metadata) == ("completed", None, {"a": "b"})
    kinds = [item.type for item in response.output]
    assert kinds == [*["message", "image_generation_call"] * 4, "message"]
    images, interleave = images_of(response), response.interleave
    assert all(image.image.size for image in images)
    assert interleave["status"] in ("complete", "exhausted") and len(interleave["steps"]) == 4
    assert set(interleave["versions"]) == {"planner", "generator", "critic"}
    assert [step["image"] for step in interleave["steps"]] == [image.sha256 for image in images]
    *texts, closing = response.output_text.split("\n\n")
    assert texts == [step["text"] for step in interleave["steps"]]
    assert closing.startswith("Done: 4 pictures.")
    assert before <= response.completed_at <= time.time()
    assert client.responses.retrieve(response.id) == response
    attempts = [attempt for step in interleave["steps"] for attempt in step["attempts"]]
    assert response.usage.output_tokens_details.images == len(attempts)
    assert response.usage.input_tokens_details.images == 0
    assert response.usage.total_tokens == 0  # the sketch world has no tokens, and says so
    planner = {"calls": 1, "input_tokens": None, "output_tokens": None}
    assert interleave["usage"]["planner"] == planner


def test_a_stream_has_the_events_of_the_api(client):
    events = stream_events(client, input=SNOWMAN, model="interleave")
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert kinds[-1] == "response.completed" and kinds[-2] == "interleave.finished"
    last = events[-1].response
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == last.output
    added = [event for event in events if event.type == "response.output_item.added"]
    assert [event.output_index for event in added] == list(range(len(last.output)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == last.output_text


def test_every_attempt_has_an_image_and_a_verdict(client):
    events = stream_events(client, input=REDRAWN)
    draws = [event for event in events if event.type == "interleave.attempt.drawn"]
    verdicts = [event for event in events if event.type == "interleave.attempt.judged"]
    partial = [event for event in events if event.type.endswith("partial_image")]
    assert len(draws) == len(verdicts) == len(partial)
    for image, draw in zip(partial, draws, strict=True):
        assert draw.sequence_number == image.sequence_number + 1
        assert (image.item_id, image.partial_image_index) == (draw.item_id, draw.iteration)
        assert decode_image(image.partial_image_b64).sha256 == draw.image
    assert sum(not event.accepted for event in verdicts) == 3
    assert len([event for event in events if event.type == "interleave.step.settled"]) == 4


def test_equal_requests_with_equal_seeds_give_equal_images(client):
    first, second = (client.responses.create(input=SNOWMAN) for _ in range(2))
    assert first.id != second.id and images_of(first) == images_of(second)
    other = client.responses.create(input=SNOWMAN, extra_body={"interleave": {"seed": 9}})
    seeds = [_seeds(response) for response in (first, second, other)]
    assert seeds[0] == seeds[1] and not set(seeds[0]) & set(seeds[2])


def _seeds(response):
    steps = response.interleave["steps"]
    return [attempt["seed"] for step in steps for attempt in step["attempts"]]


def test_a_stored_response_streams_the_same_events_again_and_ours_to_who_asks(client):
    events, more = stream_events(client, input=HOUSE), {"stream": True}
    response_id, ours = events[0].response.id, more | {"extra_headers": OWN_EVENTS}
    assert list(client.responses.retrieve(response_id, **ours)) == events
    rest = list(client.responses.retrieve(response_id, starting_after=5, **ours))
    assert [event.sequence_number for event in rest] == [e.sequence_number for e in events[6:]]
    plain = list(client.responses.retrieve(response_id, **more))
    assert [event.type for event in plain] == [
        event.type for event in events if not event.type.startswith("interleave.")
    ]
    assert [event.sequence_number for event in plain] == list(range(len(plain)))
    assert list(client.responses.retrieve(response_id, starting_after=5, **more)) == plain[6:]
    live = list(client.responses.create(input=HOUSE, stream=True))
    assert [event.type for event in live] == [event.type for event in plain]
    with pytest.raises(openai.BadRequestError, match="Interleave-Events"):
        client.responses.create(input=HOUSE, extra_headers={"Interleave-Events": "maybe"})


def test_content_of_text_and_images_in_turn(client):
    image = images_of(client.responses.create(input=HOUSE))[-1]
    content = [
        {"type": "input_text", "text": "Describe this picture in words:"},
        {"type": "input_image", "image_url": data_uri(image), "detail": "auto"},
        {"type": "input_text", "text": "What is in it?"},
    ]
    response = client.responses.create(input=[{"role": "user", "content": content}])
    assert [item.type for item in response.output] == ["message"]
    assert "house" in response.output_text and "tree" in response.output_text
    text = response.interleave["text"]
    assert text == "Describe this picture in words:\n<image>\nWhat is in it?"


def test_options_of_a_request(client):
    options = {"t_max": 1, "on_exhausted": "stop", "draw_ahead": False}
    response = client.responses.create(input=REDRAWN, extra_body={"interleave": options})
    assert response.status == "incomplete" and response.interleave["status"] == "stopped"
    image, closing = response.output[-2:]
    assert image.status == "failed" and image.result is None
    assert closing.content[0].text.startswith("Stopped at step")
    assert response.interleave["options"]["t_max"] == 1


def test_a_long_plan_needs_max_steps(home):
    prompts = [f"draw scene {number}" for number in range(60)]
    scripted = roles(planner=ScriptedPlanner(answer=lambda _: plan(*prompts)))
    with running_service(home, scripted) as service:
        create = service.client().responses.create
        response = create(input="a long story", extra_body={"interleave": {"max_steps": 60}})
        with pytest.raises(openai.BadRequestError, match="60 steps, more than max_steps = 50"):
            create(input="a long story")
    assert response.status == "completed" and len(images_of(response)) == 60


def test_errors_have_the_clients_own_classes(client):
    with pytest.raises(openai.BadRequestError, match="has no “zzz”") as error:
        client.responses.create(input="zzz")
    assert error.value.code == "invalid_prompt"
    with pytest.raises(openai.NotFoundError, match="no model gpt-9 here") as error:
        client.responses.create(model="gpt-9", input=HOUSE)
    assert error.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="there is no response resp_none"):
        client.responses.retrieve("resp_none")
    with pytest.raises(openai.BadRequestError, match="no response resp_none"):
        client.responses.create(input=HOUSE, previous_response_id="resp_none")
    with pytest.raises(openai.BadRequestError, match="no critic rl here"):
        client.responses.create(model="interleave-rl", input=HOUSE)
    with pytest.raises(openai.BadRequestError, match=r"interleave\.t_max: at most 20 here"):
        client.responses.create(input=HOUSE, extra_body={"interleave": {"t_max": 21}})
    for role, reference in (("planner", "/etc"), ("critic", "some/model"), ("planner", "rl")):
        with pytest.raises(openai.BadRequestError, match=rf"interleave\.{role}: '{reference}' is"):
            client.responses.create(input=HOUSE, extra_body={"interleave": {role: reference}})
    with pytest.raises(openai.BadRequestError, match="no critic critic_rl_checkpoint@7 here"):
        extra = {"interleave": {"critic": "critic_rl_checkpoint@7"}}
        client.responses.create(input=HOUSE, extra_body=extra)
    with pytest.raises(openai.BadRequestError, match="unknown field inptu"):
        client.responses.create(input=HOUSE, extra_body={"inptu": 1})


def test_an_error_is_the_last_event_of_a_stream(client):
    events = stream_events(client, input="zzz")
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "invalid_prompt"
    assert "sketch world" in events[-1].response.interleave["simulation"]["notice"]
    stored = client.responses.retrieve(events[-1].response.id)
    assert stored.status == "failed" and "has no “zzz”" in stored.error.message


def test_models(client):
    names = [model.id for model in client.models.list()]
    assert names == ["interleave"]
    assert client.models.retrieve("interleave").id == "interleave"
    for name in ("gpt-9", "interleave-sft"):
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve(name)


def test_deleting_and_not_storing_leave_only_the_ledger(service, client):
    texts = ["Draw a yellow sun that is deleted", "Draw a yellow sun without storing it"]
    response = client.responses.create(input=texts[0])
    client.responses.delete(response.id)
    assert is_deleted(client, response)
    not_stored = client.responses.create(input=texts[1], store=False)
    wait_until(lambda: is_deleted(client, not_stored))
    for text in texts:
        wait_until(lambda t=text: tables_with_rows(service, t) == LEDGER_ONLY)


def test_responses_of_an_earlier_service_can_be_deleted(home):
    texts = ["Draw a yellow sun, once", "Draw a yellow sun, twice"]
    with running_service(home) as service:
        deleted, _ = (service.client().responses.create(input=text) for text in texts)
        refused = service.client().responses.create(input="zzz", background=True)
    with running_service(home) as service:
        service.client().responses.delete(refused.id)
        service.client().responses.delete(deleted.id)
        assert stored_texts(service) == [texts[1]]
        assert tables_with_rows(service, texts[0]) == LEDGER_ONLY
        assert tables_with_rows(service, texts[1]) == set(TABLES)


def is_deleted(client, response):
    try:
        client.responses.retrieve(response.id)
    except openai.NotFoundError:
        return True
    return False


def stored_texts(service):
    if service.manager.home.lake.is_absent(GENERATIONS):  # nothing is flushed yet
        return []
    return query("select text from generations", service.manager.home).text.tolist()


def tables_with_rows(service, text):
    """Tables with rows of a request."""
    prompt_id = GenerationRequest(text).prompt_id
    selected = (
        f"select '{table}' as name from {table} where prompt_id = '{prompt_id}'" for table in TABLES
    )
    return set(query(" union ".join(selected), service.manager.home).name)
