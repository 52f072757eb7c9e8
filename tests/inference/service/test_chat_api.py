"""The chat API, for clients that know nothing else."""

import re

import openai
import pytest

from tests.inference.service.running_service import HOUSE, SNOWMAN, data_uri, decoded, pictures_of

_PICTURE = re.compile(r"!\[([^\]]+)\]\(data:image/png;base64,([^)]+)\)")


def asked(*content, role="user"):
    return [{"role": role, "content": part} for part in content]


def pictures_in(text):
    return [decoded(data) for _, data in _PICTURE.findall(text)]


def test_a_story_is_markdown_with_pictures(client):
    completion = client.chat.completions.create(model="interleave", messages=asked(SNOWMAN))
    choice = completion.choices[0]
    assert choice.finish_reason == "stop" and choice.message.role == "assistant"
    assert pictures_in(choice.message.content) == pictures_of(
        client.responses.create(input=SNOWMAN)
    )
    assert all(name.strip() for name, _ in _PICTURE.findall(choice.message.content))
    steps = completion.interleave["steps"]
    assert all(step["words"] in choice.message.content for step in steps)


def test_a_stream_adds_up_to_the_same(client):
    whole = client.chat.completions.create(model="interleave", messages=asked(HOUSE))
    stream = client.chat.completions.create(
        model="interleave",
        messages=asked(HOUSE),
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    told = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert told.strip() == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[0].choices[0].delta.role == "assistant" and not chunks[-1].choices


def test_pictures_as_content_parts(client):
    shown = pictures_in(
        client.chat.completions.create(model="interleave", messages=asked(HOUSE))
        .choices[0]
        .message.content
    )[-1]
    parts = [
        {"type": "text", "text": "Describe this picture in words"},
        {"type": "image_url", "image_url": {"url": data_uri(shown)}},
    ]
    completion = client.chat.completions.create(model="interleave", messages=asked(parts))
    assert "house" in completion.choices[0].message.content
    assert not pictures_in(completion.choices[0].message.content)


def test_a_conversation_goes_on_from_its_last_picture(client):
    first = client.chat.completions.create(model="interleave", messages=asked(HOUSE))
    answer = first.choices[0].message
    messages = [*asked(HOUSE), answer, *asked("Add a yellow sun")]
    second = client.chat.completions.create(model="interleave", messages=messages)
    assert second.interleave["given"] == [pictures_in(answer.content)[-1].sha256]
    assert second.interleave["text"] == "<image>\nAdd a yellow sun"


def test_errors_of_chats(client):
    with pytest.raises(openai.BadRequestError, match="nothing to draw"):
        client.chat.completions.create(model="interleave", messages=asked("zzz"))
    stream = client.chat.completions.create(model="interleave", messages=asked("zzz"), stream=True)
    with pytest.raises(openai.APIError, match="nothing to draw"):
        list(stream)
    with pytest.raises(openai.BadRequestError, match="no words"):
        client.chat.completions.create(model="interleave", messages=asked(" "))
    with pytest.raises(openai.BadRequestError, match="messages"):
        client.chat.completions.create(model="interleave", messages=[])
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-9", messages=asked(HOUSE))
