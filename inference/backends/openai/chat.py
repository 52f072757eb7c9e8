"""Chat completions through the official client."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from warehouse import EncodedImage

from ...roles import RetryableError
from ..providers.chat import ChatTurn, CompletionRequest, CompletionResult
from .client import OpenAIAdapter, translate_errors

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

_SIDES = {"user": "user", "model": "assistant"}


class OpenAIChat(OpenAIAdapter):
    """Adapter of chat completions."""

    async def answer(self, client: "AsyncOpenAI", question: CompletionRequest) -> CompletionResult:
        with translate_errors(client):
            return completion_reply(await client.chat.completions.create(**request_of(question)))


def request_of(question: CompletionRequest) -> dict[str, Any]:
    """Arguments of the client; `extra_body` has the fields that are none."""
    messages = [_message(turn) for turn in question.turns]
    if question.system:
        messages.insert(0, {"role": "system", "content": question.system})
    request: dict[str, Any] = {
        "model": question.model,
        "messages": messages,
        "max_completion_tokens": question.max_tokens,
        "extra_body": question.options,
    }
    if question.temperature is not None:
        request["temperature"] = question.temperature
    if question.seed is not None:
        request["seed"] = question.seed
    if question.schema is not None:
        schema = {"name": "answer", "schema": question.schema, "strict": True}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    return request


def _message(turn: ChatTurn) -> dict[str, Any]:
    return {"role": _SIDES[turn.side], "content": [_part(part) for part in turn.parts]}


def _part(part: str | EncodedImage) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": part.data_url}}


def completion_reply(completion: "ChatCompletion") -> CompletionResult:
    """What a completion says.

    Raises:
        TryLater: nothing.
    """
    choices: Sequence[Any] = completion.choices or ()
    if not choices:
        raise RetryableError("an answer without choices")
    message, reason, usage = choices[0].message, choices[0].finish_reason, completion.usage
    details = usage.prompt_tokens_details if usage else None
    return CompletionResult(
        text=message.content or "",
        whole=reason != "length",
        refusal="its content filter" if reason == "content_filter" else message.refusal,
        input_tokens=usage.prompt_tokens if usage else 0,
        output_tokens=usage.completion_tokens if usage else 0,
        cached_tokens=(details.cached_tokens or 0) if details else 0,
    )
