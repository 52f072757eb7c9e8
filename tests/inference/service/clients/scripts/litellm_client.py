"""LiteLLM's functions, for an OpenAI-compatible endpoint."""

import asyncio

import litellm
from calls import QUESTION, URL, call, report

SETTINGS = {"model": "openai/interleave", "api_base": URL, "api_key": "none", "num_retries": 0}
MESSAGES = [{"role": "user", "content": QUESTION}]
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {}}}


@call("completion")
def _():
    completion = litellm.completion(messages=MESSAGES, **SETTINGS)
    return completion.choices[0].message.content and completion.usage.total_tokens >= 0


@call("completion(stream)")
def _():
    stream = litellm.completion(messages=MESSAGES, stream=True, **SETTINGS)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


@call("acompletion")
def _():
    completion = asyncio.run(litellm.acompletion(messages=MESSAGES, **SETTINGS))
    return completion.choices[0].message.content


call("responses")(lambda: litellm.responses(input=QUESTION, **SETTINGS).output)


@call("responses(stream)")
def _():
    kinds = [event.type for event in litellm.responses(input=QUESTION, stream=True, **SETTINGS)]
    return kinds[-1] == "response.completed"


call("image_generation")(
    lambda: litellm.image_generation(prompt=QUESTION, **SETTINGS).data[0].b64_json
)
call("completion(tools)")(
    lambda: litellm.completion(messages=MESSAGES, tools=[FUNCTION], **SETTINGS)
)


@call("completion(response_format)")
def _():
    wanted = {"type": "json_object"}
    return litellm.completion(messages=MESSAGES, response_format=wanted, **SETTINGS)


report()
