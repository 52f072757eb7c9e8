"""OpenAI's client for Python: its helper methods."""

import asyncio
import base64
import io

import openai
from calls import QUESTION, URL, House, call, report

client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
MESSAGES = [{"role": "user", "content": QUESTION}]
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
CHAT_FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {}}}


first = client.responses.create(model="interleave", input=QUESTION)
image_id = next(item.id for item in first.output if item.type == "image_generation_call")
image = next(item.result for item in first.output if item.type == "image_generation_call")


@call("responses.create")
def _():
    assert first.completed_at and first.usage
    return first.output_text


@call("responses.create(stream)")
def _():
    events = list(client.responses.create(model="interleave", input=QUESTION, stream=True))
    return events[-1].type == "response.completed"


@call("responses.stream")
def _():
    with client.responses.stream(model="interleave", input=QUESTION) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    return all(kind.startswith("response.") for kind in kinds) and final.output_text


@call("responses.stream(response_id)")
def _():
    with client.responses.stream(response_id=first.id, starting_after=3) as stream:
        numbers = [event.sequence_number for event in stream]
    return numbers == list(range(4, 4 + len(numbers)))


@call("responses.create(background)")
def _():
    response = client.responses.create(model="interleave", input=QUESTION, background=True)
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    return response.status == "completed"


call("responses.retrieve")(lambda: client.responses.retrieve(first.id) == first)
call("responses.cancel")(lambda: client.responses.cancel(first.id).status)
call("responses.input_items.list")(
    lambda: [item.content[0].text for item in client.responses.input_items.list(first.id)]
)


@call("responses.with_raw_response")
def _():
    raw = client.responses.with_raw_response.create(model="interleave", input=QUESTION)
    return raw.parse().output_text


@call("responses.with_streaming_response")
def _():
    create = client.responses.with_streaming_response.create
    with create(model="interleave", input=QUESTION) as response:
        return response.json()["output"]


@call("previous_response_id")
def _():
    more = {"previous_response_id": first.id, "model": "interleave"}
    return client.responses.create(input="Add a yellow sun", **more).interleave["input_images"]


@call("image_generation_call by id")
def _():
    words = {"role": "user", "content": [{"type": "input_text", "text": "Add a yellow sun"}]}
    reference = {"type": "image_generation_call", "id": image_id}
    tools = [{"type": "image_generation"}]
    edit = client.responses.create(model="interleave", input=[words, reference], tools=tools)
    return edit.interleave["input_images"]


@call("tool image_generation")
def _():
    tool = {"type": "image_generation", "output_format": "jpeg", "output_compression": 60}
    response = client.responses.create(model="interleave", input=QUESTION, tools=[tool])
    results = [item.result for item in response.output if item.type == "image_generation_call"]
    return all(base64.b64decode(result).startswith(b"\xff\xd8") for result in results)


@call("partial_images")
def _():
    tool = {"type": "image_generation", "partial_images": 1}
    stream = client.responses.create(model="interleave", input=QUESTION, tools=[tool], stream=True)
    return any("partial_image" in event.type for event in stream)


@call("files")
def _():
    file = client.files.create(
        file=("a.png", io.BytesIO(base64.b64decode(image))), purpose="vision"
    )
    content = [
        {"type": "input_image", "file_id": file.id},
        {"type": "input_text", "text": "Add a yellow sun"},
    ]
    response = client.responses.create(
        model="interleave", input=[{"role": "user", "content": content}]
    )
    assert client.files.wait_for_processing(file.id) == client.files.retrieve(file.id)
    assert file.id in [each.id for each in client.files.list()]
    assert client.files.content(file.id).read() == base64.b64decode(image)
    return client.files.delete(file.id).deleted and response.interleave["input_images"]


call("responses.parse")(
    lambda: client.responses.parse(model="interleave", input=QUESTION, text_format=House)
)
call("function tools")(
    lambda: client.responses.create(model="interleave", input=QUESTION, tools=[FUNCTION])
)
call("responses.compact")(lambda: client.responses.compact(model="interleave", input=QUESTION))
call("responses.input_tokens.count")(
    lambda: client.responses.input_tokens.count(model="interleave", input=QUESTION)
)
call("conversations")(lambda: client.conversations.create())


@call("responses.delete")
def _():
    client.responses.delete(first.id)
    try:
        client.responses.retrieve(first.id)
    except openai.NotFoundError:
        return True


@call("chat.completions.create")
def _():
    completion = client.chat.completions.create(model="interleave", messages=MESSAGES)
    return completion.choices[0].message.content and completion.usage


@call("chat.completions.create(stream)")
def _():
    stream = client.chat.completions.create(model="interleave", messages=MESSAGES, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


@call("chat.completions.stream")
def _():
    with client.chat.completions.stream(model="interleave", messages=MESSAGES) as stream:
        return stream.get_final_completion().choices[0].message.content


@call("chat.completions.parse")
def _():
    parse = client.chat.completions.parse
    return parse(model="interleave", messages=MESSAGES, response_format=House)


@call("chat function tools")
def _():
    create = client.chat.completions.create
    return create(model="interleave", messages=MESSAGES, tools=[CHAT_FUNCTION])


@call("images.generate")
def _():
    answer = client.images.generate(model="interleave", prompt=QUESTION)
    return base64.b64decode(answer.data[0].b64_json).startswith(b"\x89PNG") and answer.usage


@call("images.edit")
def _():
    file = ("a.png", io.BytesIO(base64.b64decode(image)))
    answer = client.images.edit(model="interleave", image=file, prompt="Add a yellow sun")
    return answer.interleave["input_images"] and answer.data[0].b64_json


call("images.generate(n)")(lambda: client.images.generate(model="interleave", prompt=QUESTION, n=2))
call("images.generate(stream)")(
    lambda: list(client.images.generate(model="interleave", prompt=QUESTION, stream=True))
)
call("models")(lambda: client.models.retrieve(client.models.list().data[0].id))


@call("AsyncOpenAI")
def _():
    async def ask():
        asynchronous = openai.AsyncOpenAI(base_url=URL, api_key="none")
        async with asynchronous.responses.stream(model="interleave", input=QUESTION) as stream:
            return await stream.get_final_response()

    return asyncio.run(ask()).output_text


report()
