"""The backend `openai`: OpenAI, or any endpoint with its chat completions API."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import BaseModel, ValidationError

from schemas.errors import first_problem
from warehouse import EncodedImage

from ...roles import RetryableError, UnusableAnswerError
from ..backend import RESPONDENTS, register
from ..providers.api import ProviderSettings, endpoints_field
from ..providers.chat import BatchResult, CompletionRequest
from ..providers.errors import (
    EndpointUnusableError,
    NoAnswerError,
    error_from_status,
    parse_retry_after,
)
from ..providers.settings import EndpointSettings
from ..providers.structured import CompletionResult

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI
    from openai.types import Batch

_NO_KEY = "none-needed"  # the client requires one
_NO_QUOTA = "insufficient_quota"
_SIDES = {"user": "user", "model": "assistant"}
_BATCH_URL: Final = "/v1/chat/completions"
_DONE = {"completed", "expired", "cancelled"}  # the last two may have partial results
_RETRYABLE_STATUSES = {None, 408, 409, 429, 500, 502, 503, 504}


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None


class _Completion(BaseModel):
    """What counts of a completion; the SDK's own models take ten times as long."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None


@dataclass(frozen=True)
class OpenAIAdapter:
    """Chat completions, at once or in batches; the SDK's own retries are off: ours are counted.

    Encoded JSON, raw responses and the aiohttp transport take a third of its typed methods' CPU.
    """

    timeout_seconds: float
    max_batch_bytes = 150_000_000

    def connect(self, endpoint: EndpointSettings) -> "AsyncOpenAI":
        from openai import AsyncOpenAI, DefaultAioHttpClient

        return AsyncOpenAI(
            base_url=endpoint.url,
            api_key=endpoint.secret() or _NO_KEY,
            timeout=self.timeout_seconds,
            max_retries=0,
            http_client=DefaultAioHttpClient(),
        )

    async def close(self, client: "AsyncOpenAI") -> None:
        await client.close()

    async def complete(self, client: "AsyncOpenAI", request: CompletionRequest) -> CompletionResult:
        import httpx2

        content = orjson.dumps(_body(request))
        with translate_errors(client):
            response = await client.post(
                "/chat/completions", cast_to=httpx2.Response, content=content
            )
            completion = _Completion.model_validate_json(response.content)
        return _parse_completion(completion)

    async def submit(
        self, client: "AsyncOpenAI", name: str, requests: Mapping[str, CompletionRequest]
    ) -> str:
        """Upload a file of requests, and submit it as a batch."""
        lines = "\n".join(_batch_line(digest, request) for digest, request in requests.items())
        with translate_errors(client):
            file = await client.files.create(
                file=(f"{name}.jsonl", lines.encode()), purpose="batch"
            )
            batch = await client.batches.create(
                input_file_id=file.id,
                endpoint=_BATCH_URL,
                completion_window="24h",
                metadata={"name": name},
            )
        return batch.id

    async def find(self, client: "AsyncOpenAI", name: str) -> str | None:
        with translate_errors(client):
            async for batch in client.batches.list(limit=100):
                if (batch.metadata or {}).get("name") == name:
                    return batch.id
        return None

    async def results(
        self, client: "AsyncOpenAI", batch_id: str
    ) -> Mapping[str, BatchResult] | None:
        with translate_errors(client):
            batch = await client.batches.retrieve(batch_id)
            if batch.status == "failed":
                raise UnusableAnswerError(f"the batch failed: {_failure_reason(batch)}")
            if batch.status not in _DONE:
                return None
            texts = [
                (await client.files.content(file)).text
                for file in (batch.output_file_id, batch.error_file_id)
                if file
            ]
        lines = (json.loads(line) for text in texts for line in text.splitlines() if line)
        return {line["custom_id"]: _batch_result(line) for line in lines}


@contextmanager
def translate_errors(client: "AsyncOpenAI") -> Iterator[None]:
    """Around a request: translates the client's errors into those of `inference/roles.py`."""
    import aiohttp
    from openai import APIConnectionError, APIError, APIStatusError

    try:
        yield
    except APIStatusError as error:
        raise _status_error(error, client.api_key) from None
    except APIConnectionError as error:
        cause = error.__cause__
        never_sent = isinstance(
            cause and cause.__cause__, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
        )
        kind = RetryableError if never_sent else NoAnswerError
        raise kind(f"no connection: {cause or error}") from None
    except APIError as error:  # a response that is not of this API
        raise NoAnswerError(str(error)) from None
    except ValueError as error:  # status 200 with malformed JSON
        problem = first_problem(error) if isinstance(error, ValidationError) else error
        raise NoAnswerError(f"unreadable answer: {problem}") from None


def _status_error(error: "APIStatusError", key: str) -> Exception:
    """The error of a status; if its message quotes the key, the key is removed."""
    text = f"{error.status_code}: {error.message}".replace(key, "[key]")
    if error.code == _NO_QUOTA:
        return EndpointUnusableError(text)
    retry_after = parse_retry_after(error.response.headers.get("retry-after"))
    return error_from_status(error.status_code, text, retry_after)


def chat_arguments(request: CompletionRequest) -> dict[str, Any]:
    """Arguments of the client; `extra_body` has the fields that it does not know."""
    messages: list[dict[str, Any]] = [
        {"role": _SIDES[turn.side], "content": list(map(_part, turn.parts))}
        for turn in request.turns
    ]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    schema = request.schema and {"name": "answer", "schema": request.schema, "strict": True}
    arguments = {
        "model": request.model,
        "messages": messages,
        "max_completion_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "response_format": schema and {"type": "json_schema", "json_schema": schema},
        "extra_body": request.options,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def _part(part: str | EncodedImage) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": part.data_url}}


def _body(request: CompletionRequest) -> dict[str, Any]:
    arguments = chat_arguments(request)
    extra = arguments.pop("extra_body")
    return arguments | extra


def _parse_completion(completion: _Completion) -> CompletionResult:
    """Raises `NoAnswerError` if the completion has no choices."""
    if not completion.choices:
        raise NoAnswerError("an answer without choices")
    choice, usage = completion.choices[0], completion.usage or _Usage()
    message, reason, details = choice.message, choice.finish_reason, usage.prompt_tokens_details
    return CompletionResult(
        text=message.content or "",
        is_complete=reason != "length",
        refusal="its content filter" if reason == "content_filter" else message.refusal,
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_tokens=(details or {}).get("cached_tokens") or 0,
    )


def _batch_line(digest: str, request: CompletionRequest) -> str:
    line = {"custom_id": digest, "method": "POST", "url": _BATCH_URL, "body": _body(request)}
    return json.dumps(line)


def _failure_reason(batch: "Batch") -> str:
    errors = batch.errors.data if batch.errors and batch.errors.data else []
    return "; ".join(error.message or "" for error in errors) or "no reason given"


def _batch_result(line: dict[str, Any]) -> BatchResult:
    """The result or error in a line of an output file."""
    response = line.get("response") or {}
    status = response.get("status_code")
    if status == 200:
        try:
            return _parse_completion(_Completion.model_validate(response["body"]))
        except RetryableError as error:  # of this request, not of the batch
            return error
    details = line.get("error") or (response.get("body") or {}).get("error") or {}
    text = f"{status or ''} {details.get('message', 'no answer')}".strip()
    error_type = RetryableError if status in _RETRYABLE_STATUSES else UnusableAnswerError
    return error_type(text)


@register
class OpenAISettings(ProviderSettings):
    """OpenAI, or any endpoint with its API: vLLM, SGLang and others."""

    backend = "openai"
    summary = "OpenAI, or an endpoint with its API, where `roles` names openai"
    plays = ("planner", "critic", "scorer", *RESPONDENTS)
    package = "openai"
    served_by = ("agents", "command")

    endpoints: list[EndpointSettings] = endpoints_field(key="OPENAI_API_KEY")

    def adapter(self) -> OpenAIAdapter:
        return OpenAIAdapter(self.timeout_seconds)
