"""Requests that go on from earlier ones: edit turns by id, and the items of a request."""

from functools import partial

import numpy as np
import openai
import pytest
from PIL import Image

from tests.inference.service.running_service import (
    HOUSE,
    SNOWMAN,
    data_uri,
    images_of,
    running_service,
)
from warehouse import EncodedImage

ADD_SUN = {"role": "user", "content": [{"type": "input_text", "text": "Add a yellow sun"}]}


@pytest.fixture(scope="module")
def snowman(client):
    return client.responses.create(input=SNOWMAN)


def calls_of(response):
    return [item for item in response.output if item.type == "image_generation_call"]


def test_an_image_is_edited_by_its_id(client, snowman):
    """OpenAI's documentation has the image after the words."""
    reference = {"type": "image_generation_call", "id": calls_of(snowman)[1].id}
    for items in ([reference, ADD_SUN], [ADD_SUN, reference]):
        edited = client.responses.create(input=items)
        assert edited.interleave["input_images"] == [images_of(snowman)[1].sha256]
        assert edited.interleave["text"] == "<image>\nAdd a yellow sun"


def test_a_named_image_replaces_the_last_one_of_the_previous_response(client, snowman):
    reference = {"type": "image_generation_call", "id": calls_of(snowman)[0].id}
    edited = client.responses.create(input=[ADD_SUN, reference], previous_response_id=snowman.id)
    assert edited.interleave["input_images"] == [images_of(snowman)[0].sha256]


def test_a_conversation_keeps_its_image_over_an_answer_in_words(client):
    house = client.responses.create(input=HOUSE)
    more = {"previous_response_id": house.id}
    words = client.responses.create(input="Describe this picture in words", **more)
    assert [item.type for item in words.output] == ["message"]
    more = {"previous_response_id": words.id, "instructions": "Keep it simple."}
    edited = client.responses.create(input="Add a yellow sun", **more)
    for response in (words, edited):
        assert response.interleave["input_images"] == [images_of(house)[-1].sha256]
    assert (edited.previous_response_id, edited.instructions) == (words.id, "Keep it simple.")
    assert edited.interleave["text"].count("<image>") == 1 and images_of(edited)


def test_items_of_earlier_answers_may_be_references(client, snowman):
    """As the AI SDK sends them."""
    items = [{"type": "item_reference", "id": item.id} for item in snowman.output]
    edited = client.responses.create(input=[{"role": "user", "content": SNOWMAN}, *items, ADD_SUN])
    assert edited.interleave["input_images"] == [images_of(snowman)[-1].sha256]
    listed = client.responses.input_items.list(edited.id, order="asc").data
    assert [item.id for item in listed][1:-1] == [item.id for item in snowman.output]


def test_an_unknown_image_is_named_with_its_place(client):
    for call_id in ("ig_0_1", "ig_nothing", "x"):
        reference = {"type": "image_generation_call", "id": call_id}
        with pytest.raises(openai.BadRequestError, match=call_id) as error:
            client.responses.create(input=[ADD_SUN, reference])
        assert error.value.param == "input.1.id" and error.value.code == "image_not_found"


def test_images_of_other_keys_are_not_found(home):
    with running_service(home, keys=("one", "two")) as service:
        response = service.client(key="one").responses.create(input=HOUSE)
        reference = {"type": "image_generation_call", "id": calls_of(response)[0].id}
        with pytest.raises(openai.BadRequestError, match="no stored response"):
            service.client(key="two").responses.create(input=[ADD_SUN, reference])


def test_items_of_a_request(client, snowman):
    (item,) = client.responses.input_items.list(snowman.id).data
    assert (item.type, item.role, item.content[0].text) == ("message", "user", SNOWMAN)
    image = images_of(snowman)[-1]
    content = [
        {"type": "input_image", "image_url": data_uri(image)},
        {"type": "input_text", "text": "Add a yellow sun"},
    ]
    answer = {"role": "assistant", "content": "Which one?"}
    given = [{"role": "user", "content": "hello"}, answer, {"role": "user", "content": content}]
    response = client.responses.create(input=given)
    items = client.responses.input_items.list(response.id, order="asc").data
    for each in items:
        type(each).model_validate(each.model_dump())
    assert [each.role for each in items] == ["user", "assistant", "user"]
    assert items[2].content[0].image_url is None
    include = ["message.input_image.image_url"]
    whole = client.responses.input_items.list(response.id, include=include).data
    assert whole[0].content[0].image_url == data_uri(image)
    assert [each.id for each in whole] == [each.id for each in reversed(items)]


def test_pages_of_items(client):
    given = [{"role": "user", "content": f"A red house, number {n}"} for n in range(5)]
    response = client.responses.create(input=given)
    first = client.responses.input_items.list(response.id, limit=2, order="asc")
    assert len(first.data) == 2 and first.has_more
    ids = [item.id for item in client.responses.input_items.list(response.id, limit=2)]
    assert len(set(ids)) == 5  # all pages
    with pytest.raises(openai.BadRequestError, match="no item nothing"):
        client.responses.input_items.list(response.id, after="nothing")
    with pytest.raises(openai.NotFoundError):
        client.responses.input_items.list("resp_none")


def test_large_images_arrive_complete(client):
    """They are decoded in another process, whatever part of a request they are."""
    noise = np.random.default_rng(7).integers(0, 255, (500, 500, 3), dtype=np.uint8)
    image = EncodedImage.of(Image.fromarray(noise))
    uri, ask = data_uri(image), {"role": "user", "content": "Add a yellow sun"}
    words = {"type": "text", "text": "Add a yellow sun"}
    parts = [words, {"type": "image_url", "image_url": {"url": uri}}]
    earlier = f"![A]({data_uri(EncodedImage.white((64, 64)))})\n\n![B]({uri})"
    respond = client.responses.create
    chat = partial(client.chat.completions.create, model="interleave")
    call = {"type": "image_generation_call", "id": "ig_1", "result": uri.partition(",")[2]}
    given = {"role": "user", "content": [{"type": "input_image", "image_url": uri}]}
    for number, create in enumerate(
        [
            partial(respond, input=[given, ask]),
            partial(respond, input=[call, ask]),
            partial(chat, messages=[{"role": "user", "content": parts}]),
            partial(chat, messages=[{"role": "assistant", "content": earlier}, ask]),
        ]
    ):
        key = {"Idempotency-Key": f"large {number}"}
        first, again = create(extra_headers=key), create(extra_headers=key)
        assert first.interleave["input_images"] == [image.sha256] and again.id == first.id
