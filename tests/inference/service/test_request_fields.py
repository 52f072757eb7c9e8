"""Every field of a request is honoured, has no effect by its nature, or is refused by name."""

import io
from functools import partial

import openai
import pytest
from PIL import Image

from tests.inference.service.running_service import (
    HOUSE,
    REDRAWN,
    SNOWMAN,
    error_of,
    images_of,
    running_service,
    wait_until,
)
from warehouse.sql import query

ASK = [{"role": "user", "content": HOUSE}]
IMAGE_TOOL = {"type": "image_generation"}
SCHEMA = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
FUNCTION = {"type": "function", "name": "f", "parameters": {}, "strict": True}


def refused(create, param, **fields):
    with pytest.raises(openai.BadRequestError) as error:
        create(**fields)
    assert error.value.param == param
    assert error.value.message.count(param) >= 1
    return error.value


REFUSED = [
    ("temperature", {"temperature": 0.7}),
    ("top_p", {"top_p": 0.5}),
    ("top_logprobs", {"top_logprobs": 3}),
    ("include", {"include": ["message.output_text.logprobs"]}),
    ("text.format.type", {"text": {"format": SCHEMA}}),
    ("text.verbosity", {"text": {"verbosity": "low"}}),
    ("reasoning.effort", {"reasoning": {"effort": "high"}}),
    ("max_tool_calls", {"max_tool_calls": 3}),
    ("conversation", {"conversation": "conv_1"}),
    ("tool_choice.type", {"tool_choice": {"type": "function", "name": "f"}}),
    ("tools.0.type", {"tools": [FUNCTION]}),
    ("tools.0.type", {"tools": [{"type": "web_search"}]}),
    ("tools", {"tools": [IMAGE_TOOL, IMAGE_TOOL]}),
    ("tools.0.size", {"tools": [IMAGE_TOOL | {"size": "1024x1536"}]}),
    ("tools.0.quality", {"tools": [IMAGE_TOOL | {"quality": "high"}]}),
    ("tools.0.background", {"tools": [IMAGE_TOOL | {"background": "transparent"}]}),
    ("tools.0.input_image_mask", {"tools": [IMAGE_TOOL | {"input_image_mask": {}}]}),
    ("tools.0.model", {"tools": [IMAGE_TOOL | {"model": "gpt-image-2"}]}),
    ("tools.0.partial_images", {"tools": [IMAGE_TOOL | {"partial_images": 4}]}),
    ("tools.0.output_format", {"tools": [IMAGE_TOOL | {"output_format": "gif"}]}),
    ("tools.0.action", {"tools": [IMAGE_TOOL | {"action": "edit"}]}),
]
REFUSED_IN_CHAT = [
    ("temperature", {"temperature": 0.7}),
    ("stop", {"stop": ["x"]}),
    ("n", {"n": 2}),
    ("logprobs", {"logprobs": True}),
    ("presence_penalty", {"presence_penalty": 1}),
    ("reasoning_effort", {"reasoning_effort": "low"}),
    ("response_format.type", {"response_format": {"type": "json_object"}}),
    ("tools", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    ("tool_choice", {"tool_choice": "required"}),
    ("modalities.1", {"modalities": ["text", "audio"]}),
]


def test_what_cannot_be_honoured_is_refused_by_name(client):
    for param, fields in REFUSED:
        refused(client.responses.create, param, input=HOUSE, **fields)
    create = partial(client.chat.completions.create, model="interleave", messages=ASK)
    for param, fields in REFUSED_IN_CHAT:
        refused(create, param, **fields)


def test_values_that_change_nothing_are_accepted(client):
    client.responses.create(
        input=HOUSE,
        temperature=0,
        top_p=1,
        text={"format": {"type": "text"}},
        reasoning={"effort": None},
        tools=[IMAGE_TOOL | {"size": "auto", "quality": "auto", "moderation": "low"}],
        tool_choice="auto",
        include=["reasoning.encrypted_content"],
        truncation="auto",
        parallel_tool_calls=True,
        service_tier="auto",
        user="somebody",
    )
    client.chat.completions.create(
        model="interleave",
        messages=ASK,
        temperature=1,
        n=1,
        frequency_penalty=0,
        response_format={"type": "text"},
        tools=[],
        tool_choice="none",
        modalities=["text", "image"],
    )


def test_places_are_those_of_the_request(service):
    image = {"type": "input_image", "image_url": 5}
    cases = {
        "input.0.content.1.image_url": [{"role": "user", "content": [_text("a"), image]}],
        "input.0.role": [{"role": "narrator", "content": "a"}],
        "input.1.content": [{"role": "user", "content": "a"}, {"role": "user"}],
        "input.0": [{"type": "function_call_output", "call_id": "x", "output": "y"}],
        "input": 5,
    }
    for param, given in cases.items():
        error = error_of(service.post("/v1/responses", json={"input": given}), 400)
        assert error["param"] == param and error["message"].startswith(f"{param}")
    cases = {
        "messages.0.content.0.image_url.url": [{"type": "image_url", "image_url": {"url": 1}}],
        "messages.0.content.1.text": [{"type": "text", "text": "a"}, {"type": "text"}],
    }
    for param, content in cases.items():
        body = {"messages": [{"role": "user", "content": content}]}
        error = error_of(service.post("/v1/chat/completions", json=body), 400)
        assert error["param"] == param and param in error["message"]


def _text(text):
    return {"type": "input_text", "text": text}


def test_the_format_of_images(client):
    for output_format in ("jpeg", "webp"):
        tool = IMAGE_TOOL | {"output_format": output_format, "partial_images": 0}
        with client.responses.stream(model="interleave", input=HOUSE, tools=[tool]) as stream:
            kinds = [event.type for event in stream]
            response = stream.get_final_response()
        assert not any("partial_image" in kind for kind in kinds)
        for image in images_of(response):
            assert Image.open(io.BytesIO(image.data)).format == output_format.upper()
        assert response.tools[0].output_format == output_format
    item = next(each for each in response.output if each.type == "image_generation_call")
    again = client.responses.create(
        input=[item.model_dump(exclude_unset=True), {"role": "user", "content": "Add a sun"}]
    )
    assert again.interleave["input_images"] == [images_of(response)[0].sha256]
    sizes = [
        len(images_of(client.responses.create(input=HOUSE, tools=[_jpeg(quality)]))[-1].data)
        for quality in (10, 90)
    ]
    assert sizes[0] < sizes[1]


def _jpeg(quality):
    return IMAGE_TOOL | {"output_format": "jpeg", "output_compression": quality}


def test_partial_images_are_the_first_attempts(client):
    request = {"input": REDRAWN, "tools": [IMAGE_TOOL | {"partial_images": 1}]}
    events = list(client.responses.create(stream=True, **request))
    steps = events[-1].response.interleave["steps"]
    assert len([event for event in events if event.type.endswith("partial_image")]) == len(steps)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert max(len(step["attempts"]) for step in steps) > 1


def test_an_image_can_be_required(client):
    image = images_of(client.responses.create(input=HOUSE, tool_choice="required"))[-1]
    assert image
    describe = {"input": _describe(client)}
    response = client.responses.create(**describe)
    assert [item.type for item in response.output] == ["message"]
    for choice in ("required", IMAGE_TOOL):
        with pytest.raises(openai.BadRequestError, match="tool_choice: the plan has no picture"):
            client.responses.create(**describe, tool_choice=choice)


def _describe(client):
    response = client.responses.create(input=HOUSE)
    call = next(item for item in response.output if item.type == "image_generation_call")
    reference = {"type": "image_generation_call", "id": call.id}
    return [reference, {"role": "user", "content": "Describe this picture in words"}]


def test_a_plan_may_be_too_long(home):
    with running_service(home) as service:
        client = service.client()
        too_long = r"max_output_tokens: the plan has \d+ tokens"
        with pytest.raises(openai.BadRequestError, match=too_long):
            client.responses.create(input=SNOWMAN, max_output_tokens=1)
        with pytest.raises(openai.BadRequestError, match="max_tokens: the plan has"):
            client.chat.completions.create(model="interleave", messages=ASK, max_tokens=1)
        response = client.responses.create(input=SNOWMAN, max_output_tokens=1000)
        assert response.max_output_tokens == 1000
    rows = query("select status, channel from generations order by status", home).values.tolist()
    assert rows == [[status, "service"] for status in ("complete", "refused", "refused")]


def test_chat_that_is_not_stored(service, client):
    completion = client.chat.completions.create(model="interleave", messages=ASK, store=False)
    response_id = completion.id.replace("chatcmpl-", "resp_")
    wait_until(lambda: service.get(f"/v1/responses/{response_id}").status_code == 404)
