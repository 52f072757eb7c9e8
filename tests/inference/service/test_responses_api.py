"""The Responses API, asked by the official client as it comes."""

import openai
import pytest

from inference.generation.requests import prompt_id_of
from tests.inference.scripted_world import ScriptedPlanner, plan, roles
from tests.inference.service.running_service import (
    HOUSE,
    SNOWMAN,
    data_uri,
    decoded,
    pictures_of,
    running,
    until,
)
from warehouse import query

STANDARD = "response."
TABLES_OF_A_STORY = ("generations", "plans", "trajectories", "attempts", "model_calls")
ONLY_THE_LEDGER = {"model_calls"}


def streamed(client, **asked):
    with client.responses.create(stream=True, **asked) as stream:
        return list(stream)


def test_a_story_is_words_and_pictures_in_turn(service, client):
    response = client.responses.create(model="interleave", input=SNOWMAN, metadata={"a": "b"})
    assert response.status == "completed" and response.error is None
    assert [item.type for item in response.output] == ["message", "image_generation_call"] * 4
    assert response.output_text and response.metadata == {"a": "b"}
    assert all(picture.image.size for picture in pictures_of(response))
    story = response.interleave
    assert story["status"] in ("complete", "exhausted") and len(story["steps"]) == 4
    assert set(story["versions"]) == {"planner", "generator", "critic"}
    assert [step["picture"] for step in story["steps"]] == [
        picture.sha256 for picture in pictures_of(response)
    ]
    again = client.responses.retrieve(response.id)
    assert again == response


def test_a_stream_is_the_apis_own_events(client):
    events = streamed(client, input=SNOWMAN, model="interleave")
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


def test_standard_events_are_of_the_clients_own_types(client):
    """An event that the client does not know comes as some other class: none of the API's does."""
    for event in streamed(client, input=HOUSE):
        if event.type.startswith(STANDARD):
            assert type(event).__name__.startswith("Response"), event
            type(event).model_validate(event.model_dump())


def test_every_attempt_is_shown_and_judged(client):
    """Over some stories, so that some attempts are refused."""
    refused = 0
    for seed in range(6):
        events = streamed(client, input=SNOWMAN, extra_body={"interleave": {"seed": seed}})
        drawn = [event for event in events if event.type == "interleave.attempt.drawn"]
        judged = [event for event in events if event.type == "interleave.attempt.judged"]
        partial = [event for event in events if event.type.endswith("partial_image")]
        assert len(drawn) == len(judged) == len(partial)
        for shown, said in zip(partial, drawn, strict=True):
            assert said.sequence_number == shown.sequence_number + 1
            assert (shown.item_id, shown.partial_image_index) == (said.item_id, said.iteration)
            assert decoded(shown.partial_image_b64).sha256 == said.picture
        refused += sum(not event.accepted for event in judged)
        settled = [event for event in events if event.type == "interleave.step.settled"]
        assert len(settled) == 4
    assert refused


def test_the_same_request_is_told_alike(client):
    first, second = (client.responses.create(input=SNOWMAN) for _ in range(2))
    assert first.id != second.id and pictures_of(first) == pictures_of(second)
    other = client.responses.create(input=SNOWMAN, extra_body={"interleave": {"seed": 9}})
    seeds = [_seeds(response) for response in (first, second, other)]
    assert seeds[0] == seeds[1] and not set(seeds[0]) & set(seeds[2])


def _seeds(response):
    steps = response.interleave["steps"]
    return [attempt["seed"] for step in steps for attempt in step["attempts"]]


def test_what_is_over_streams_again_from_where_the_client_was(client):
    events = streamed(client, input=HOUSE)
    again = list(client.responses.retrieve(events[0].response.id, stream=True))
    assert [_told(event) for event in again] == [_told(event) for event in events]
    rest = list(client.responses.retrieve(events[0].response.id, stream=True, starting_after=5))
    assert [event.sequence_number for event in rest] == [e.sequence_number for e in events[6:]]


def _told(event):
    """Seconds of a verdict are in the ledger only."""
    told = event.model_dump()
    told.pop("seconds", None)
    return told


def test_the_clients_own_accumulation_works(client):
    with client.responses.stream(model="interleave", input=HOUSE) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert final.status == "completed" and pictures_of(final)


def test_in_the_background(client):
    response = client.responses.create(input=SNOWMAN, background=True)
    assert response.status in ("queued", "in_progress")
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    assert response.status == "completed" and len(pictures_of(response)) == 4


def test_a_story_goes_on_from_an_earlier_one(client):
    first = client.responses.create(input="A red house beside a tree")
    second = client.responses.create(
        input="Add a yellow sun", previous_response_id=first.id, instructions="Keep it simple."
    )
    assert second.previous_response_id == first.id and second.instructions == "Keep it simple."
    assert second.interleave["given"] == [pictures_of(first)[-1].sha256]
    assert second.interleave["text"].count("<image>") == 1
    assert pictures_of(second)


def test_pictures_and_words_in_turn(client):
    shown = pictures_of(client.responses.create(input=HOUSE))[-1]
    asked = [
        {"type": "input_text", "text": "Describe this picture in words:"},
        {"type": "input_image", "image_url": data_uri(shown), "detail": "auto"},
        {"type": "input_text", "text": "What is in it?"},
    ]
    response = client.responses.create(input=[{"role": "user", "content": asked}])
    assert [item.type for item in response.output] == ["message"]
    assert "house" in response.output_text and "tree" in response.output_text
    text = response.interleave["text"]
    assert text == "Describe this picture in words:\n<image>\nWhat is in it?"


def test_an_answer_sent_back_is_what_the_story_goes_on_from(client):
    first = client.responses.create(input="A red house beside a tree")
    said = [{"role": "user", "content": "A red house beside a tree"}]
    answered = [item.model_dump(exclude_unset=True) for item in first.output]
    second = client.responses.create(
        input=[*said, *answered, {"role": "user", "content": "Add a yellow sun"}]
    )
    assert second.interleave["given"] == [pictures_of(first)[-1].sha256]
    assert second.interleave["text"] == "<image>\nAdd a yellow sun"


def test_rules_of_a_request(client):
    rules = {"t_max": 1, "on_exhausted": "stop", "draw_ahead": False, "seed": 3}
    for seed in range(20):
        response = client.responses.create(
            input=SNOWMAN, extra_body={"interleave": rules | {"seed": seed}}
        )
        if response.status != "completed":
            break
    assert response.status == "incomplete" and response.interleave["status"] == "stopped"
    assert response.output[-1].status == "failed" and response.output[-1].result is None
    assert response.interleave["rules"]["t_max"] == 1


def test_a_long_story_is_told_where_it_may_be_long(home):
    prompts = [f"draw scene {number}" for number in range(60)]
    players = roles(planner=ScriptedPlanner(answer=lambda _: plan(*prompts)))
    with running(home, players) as service:
        ask = service.client().responses.create
        response = ask(input="a long story", extra_body={"interleave": {"max_steps": 60}})
        with pytest.raises(openai.BadRequestError, match="60 steps, more than max_steps = 50"):
            ask(input="a long story")
    assert response.status == "completed" and len(pictures_of(response)) == 60


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.BadRequestError, match="nothing to draw") as refused:
        client.responses.create(input="zzz")
    assert refused.value.code == "invalid_prompt"
    with pytest.raises(openai.NotFoundError, match="no model gpt-9 here") as unknown:
        client.responses.create(model="gpt-9", input=HOUSE)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="there is no response resp_none"):
        client.responses.retrieve("resp_none")
    with pytest.raises(openai.BadRequestError, match="no response resp_none"):
        client.responses.create(input=HOUSE, previous_response_id="resp_none")
    with pytest.raises(openai.BadRequestError, match="no critic rl here"):
        client.responses.create(model="interleave-rl", input=HOUSE)
    with pytest.raises(openai.BadRequestError, match=r"interleave\.t_max: at most 20 here"):
        client.responses.create(input=HOUSE, extra_body={"interleave": {"t_max": 21}})
    with pytest.raises(openai.BadRequestError, match="no field is called inptu here"):
        client.responses.create(input=HOUSE, extra_body={"inptu": 1})


def test_a_refusal_in_a_stream_is_its_last_event(client):
    events = streamed(client, input="zzz")
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "invalid_prompt"
    kept = client.responses.retrieve(events[-1].response.id)
    assert kept.status == "failed" and "nothing to draw" in kept.error.message


def test_models(client):
    names = [model.id for model in client.models.list()]
    assert names == ["interleave", "interleave-rl", "interleave-sft"]
    assert client.models.retrieve("interleave-sft").id == "interleave-sft"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


@pytest.mark.parametrize("archived", [False, True])
def test_what_is_deleted_is_gone(service, client, archived):
    text = f"Draw a yellow sun, {'long' if archived else 'not long'} ago"
    response = client.responses.create(input=text)
    if archived:
        until(lambda: text in texts_kept(service))
    client.responses.delete(response.id)
    assert is_gone(client, response)
    assert rows_about(service, text) == ONLY_THE_LEDGER


def test_what_is_not_to_be_stored_is_not(service, client):
    text = "Draw a yellow sun for nobody else"
    response = client.responses.create(input=text, store=False)
    until(lambda: is_gone(client, response))
    until(lambda: rows_about(service, text) == ONLY_THE_LEDGER)


def test_what_an_earlier_service_told_can_be_deleted(home):
    texts = ["Draw a yellow sun, once", "Draw a yellow sun, twice"]
    with running(home) as service:
        gone, _ = (service.client().responses.create(input=text) for text in texts)
        refused = service.client().responses.create(input="zzz", background=True)
    with running(home) as service:
        service.client().responses.delete(refused.id)
        service.client().responses.delete(gone.id)
        assert texts_kept(service) == [texts[1]]
        assert rows_about(service, texts[0]) == ONLY_THE_LEDGER
        assert rows_about(service, texts[1]) == set(TABLES_OF_A_STORY)


def is_gone(client, response):
    try:
        client.responses.retrieve(response.id)
    except openai.NotFoundError:
        return True
    return False


def texts_kept(service):
    return query("select text from generations", service.service.home).text.tolist()


def rows_about(service, text):
    """The tables that have rows about a request."""
    where = f"where prompt_id = '{prompt_id_of(text, [])}'"
    return {
        table
        for table in TABLES_OF_A_STORY
        if query(f"select 1 from {table} {where}", service.service.home).size
    }


async def test_the_asynchronous_client(service):
    async with service.async_client() as client:
        response = await client.responses.create(input=HOUSE)
        assert pictures_of(response)
        stream = await client.responses.create(input=HOUSE, stream=True)
        kinds = [event.type async for event in stream]
        assert kinds[-1] == "response.completed"
        assert (await client.responses.retrieve(response.id)).id == response.id
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(input="zzz")


def test_a_request_is_a_row(service, client):
    response = client.responses.create(input=HOUSE)
    wanted = f"generation_id = '{response.interleave['generation_id']}'"

    def rows():
        return query(
            f"select door, status, text from generations where {wanted}", service.service.home
        ).values.tolist()

    until(rows)
    assert rows() == [["service", response.interleave["status"], HOUSE]]
