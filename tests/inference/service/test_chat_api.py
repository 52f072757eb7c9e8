"""The chat API, with the official client."""

import re

import openai
import pytest

from tests.inference.service.running_service import (
    HOUSE,
    SNOWMAN,
    data_uri,
    decode_image,
    images_of,
)

_MARKDOWN_IMAGE = re.compile(r"!\[([^\]]+)\]\(data:image/png;base64,([^)]+)\)")


def user(content):
    return {"role": "user", "content": content}


@pytest.fixture(scope="module")
def house(client):
    return client.chat.completions.create(model="interleave", messages=[user(HOUSE)])


def images_in(text):
    return [decode_image(data) for _, data in _MARKDOWN_IMAGE.findall(text)]


def test_a_message_is_markdown_with_images(client):
    completion = client.chat.completions.create(model="interleave", messages=[user(SNOWMAN)])
    type(completion).model_validate(completion.model_dump())
    choice = completion.choices[0]
    assert choice.finish_reason == "stop" and choice.message.role == "assistant"
    assert images_in(choice.message.content) == images_of(client.responses.create(input=SNOWMAN))
    assert all(name.strip() for name, _ in _MARKDOWN_IMAGE.findall(choice.message.content))
    steps = completion.interleave["steps"]
    assert all(step["text"] in choice.message.content for step in steps)
    attempts = [attempt for step in steps for attempt in step["attempts"]]
    assert completion.usage.completion_tokens_details.images == len(attempts)


def test_a_stream_adds_up_to_the_message(client, house):
    stream = client.chat.completions.create(
        model="interleave",
        messages=[user(HOUSE)],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    for chunk in chunks:
        type(chunk).model_validate(chunk.model_dump())
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert content.strip() == house.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[0].choices[0].delta.role == "assistant" and not chunks[-1].choices


def test_images_as_content_parts(client, house):
    image = images_in(house.choices[0].message.content)[-1]
    parts = [
        {"type": "text", "text": "Describe this picture in words"},
        {"type": "image_url", "image_url": {"url": data_uri(image)}},
    ]
    completion = client.chat.completions.create(model="interleave", messages=[user(parts)])
    assert "house" in completion.choices[0].message.content
    assert not images_in(completion.choices[0].message.content)


def test_a_conversation_continues_from_its_last_image(client, house):
    answer = house.choices[0].message
    messages = [user(HOUSE), answer, user("Add a yellow sun")]
    second = client.chat.completions.create(model="interleave", messages=messages)
    assert second.interleave["input_images"] == [images_in(answer.content)[-1].sha256]
    assert second.interleave["text"] == "<image>\nAdd a yellow sun"


def test_errors(client):
    with pytest.raises(openai.BadRequestError, match="has no “zzz”"):
        client.chat.completions.create(model="interleave", messages=[user("zzz")])
    stream = client.chat.completions.create(model="interleave", messages=[user("zzz")], stream=True)
    with pytest.raises(openai.APIError, match="has no “zzz”"):
        list(stream)
    with pytest.raises(openai.BadRequestError, match="no words"):
        client.chat.completions.create(model="interleave", messages=[user(" ")])
    with pytest.raises(openai.BadRequestError, match="messages"):
        client.chat.completions.create(model="interleave", messages=[])
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-9", messages=[user(HOUSE)])
