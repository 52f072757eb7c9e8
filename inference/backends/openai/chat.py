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

    async def complete(self, client: "AsyncOpenAI", request: CompletionRequest) -> CompletionResult:
        with translate_errors(client):
            completion = await client.chat.completions.create(**chat_arguments(request))
        return parse_completion(completion)


def chat_arguments(request: CompletionRequest) -> dict[str, Any]:
    """Arguments of the client; `extra_body` has the fields that it does not know."""
    messages = [_message(turn) for turn in request.turns]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    arguments: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "max_completion_tokens": request.max_tokens,
        "extra_body": request.options,
    }
    if request.temperature is not None:
        arguments["temperature"] = request.temperature
    if request.seed is not None:
        arguments["seed"] = request.seed
    if request.schema is not None:
        schema = {"name": "answer", "schema": request.schema, "strict": True}
        arguments["response_format"] = {"type": "json_schema", "json_schema": schema}
    return arguments


def _message(turn: ChatTurn) -> dict[str, Any]:
    return {"role": _SIDES[turn.side], "content": [_part(part) for part in turn.parts]}


def _part(part: str | EncodedImage) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": part.data_url}}


def parse_completion(completion: "ChatCompletion") -> CompletionResult:
    """The result that a completion holds.

    Raises:
        RetryableError: it has no choices.
    """
    choices: Sequence[Any] = completion.choices or ()
    if not choices:
        raise RetryableError("an answer without choices")
    message, reason, usage = choices[0].message, choices[0].finish_reason, completion.usage
    details = usage.prompt_tokens_details if usage else None
    return CompletionResult(
        text=message.content or "",
        is_complete=reason != "length",
        refusal="its content filter" if reason == "content_filter" else message.refusal,
        input_tokens=usage.prompt_tokens if usage else 0,
        output_tokens=usage.completion_tokens if usage else 0,
        cached_tokens=(details.cached_tokens or 0) if details else 0,
    )
