"""The batch API of OpenAI: a file of requests in, a file of answers out."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...roles import RetryableError, UnusableAnswerError
from ..providers.batches import BatchResult, find_batch
from ..providers.chat import CompletionRequest
from .chat import chat_arguments, parse_completion
from .client import OpenAIAdapter, translate_errors

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types import Batch

_URL: Final = "/v1/chat/completions"
_DONE = {"completed", "expired", "cancelled"}  # the last two may have partial results


class OpenAIBatches(OpenAIAdapter):
    """Adapter of batches of chat completions."""

    max_batch_bytes = 150_000_000

    async def submit(
        self, client: "AsyncOpenAI", name: str, requests: Mapping[str, CompletionRequest]
    ) -> str:
        lines = "\n".join(_line(digest, request) for digest, request in requests.items())
        with translate_errors(client):
            file = await client.files.create(
                file=(f"{name}.jsonl", lines.encode()), purpose="batch"
            )
            batch = await client.batches.create(
                input_file_id=file.id,
                endpoint=_URL,
                completion_window="24h",
                metadata={"name": name},
            )
        return batch.id

    async def find(self, client: "AsyncOpenAI", name: str) -> str | None:
        with translate_errors(client):
            batch = await find_batch(
                client.batches.list(limit=100),
                lambda batch: (batch.metadata or {}).get("name") == name,
            )
        return batch.id if batch else None

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
        return {line["custom_id"]: _result(line) for line in lines}


def _line(digest: str, request: CompletionRequest) -> str:
    arguments = chat_arguments(request)
    extra = arguments.pop("extra_body")
    body = arguments | extra
    return json.dumps({"custom_id": digest, "method": "POST", "url": _URL, "body": body})


def _failure_reason(batch: "Batch") -> str:
    errors = batch.errors.data if batch.errors and batch.errors.data else []
    return "; ".join(error.message or "" for error in errors) or "no reason given"


def _result(line: dict[str, Any]) -> BatchResult:
    """The result or error in a line of an output file."""
    from openai.types.chat import ChatCompletion

    response = line.get("response") or {}
    status = response.get("status_code")
    if status == 200:
        try:
            return parse_completion(ChatCompletion.model_validate(response["body"]))
        except RetryableError as error:  # of this request, not of the batch
            return error
    details = line.get("error") or (response.get("body") or {}).get("error") or {}
    text = f"{status or ''} {details.get('message', 'no answer')}".strip()
    is_retryable = status in (None, 408, 409, 429, 500, 502, 503, 504)
    return RetryableError(text) if is_retryable else UnusableAnswerError(text)
