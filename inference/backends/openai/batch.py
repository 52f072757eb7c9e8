"""The batch API of OpenAI: a file of requests goes in, a file of answers comes out."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...roles import RetryableError, UnusableAnswerError
from ..providers.batches import Outcome
from ..providers.chat import CompletionRequest
from .chat import completion_reply, request_of
from .client import OpenAIAdapter, translate_errors

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types import Batch

_URL: Final = "/v1/chat/completions"
_DONE = {"completed", "expired", "cancelled"}  # the last two may have answered in part
_SEARCHED = 500  # batches of the key, newest first


class OpenAIBatches(OpenAIAdapter):
    """Adapter of batches of chat completions."""

    batch_bytes = 150_000_000

    async def submit(
        self, client: "AsyncOpenAI", name: str, questions: Mapping[str, CompletionRequest]
    ) -> str:
        lines = "\n".join(_line(digest, question) for digest, question in questions.items())
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
            number = 0
            async for batch in client.batches.list(limit=100):
                if (batch.metadata or {}).get("name") == name:
                    return batch.id
                number += 1
                if number >= _SEARCHED:
                    return None
        return None

    async def outcomes(self, client: "AsyncOpenAI", batch: str) -> Mapping[str, Outcome] | None:
        with translate_errors(client):
            state = await client.batches.retrieve(batch)
            if state.status == "failed":
                raise UnusableAnswerError(f"the batch failed: {_why(state)}")
            if state.status not in _DONE:
                return None
            texts = [
                (await client.files.content(file)).text
                for file in (state.output_file_id, state.error_file_id)
                if file
            ]
        return dict(outcome for text in texts for outcome in _outcomes(text))


def _line(digest: str, question: CompletionRequest) -> str:
    request = request_of(question)
    more = request.pop("extra_body")
    body = request | more
    return json.dumps({"custom_id": digest, "method": "POST", "url": _URL, "body": body})


def _why(batch: "Batch") -> str:
    errors = batch.errors.data if batch.errors and batch.errors.data else []
    return "; ".join(error.message or "" for error in errors) or "it does not say why"


def _outcomes(text: str) -> Iterator[tuple[str, Outcome]]:
    for line in filter(None, text.splitlines()):
        answer = json.loads(line)
        yield answer["custom_id"], _outcome(answer)


def _outcome(answer: dict[str, Any]) -> Outcome:
    from openai.types.chat import ChatCompletion

    response = answer.get("response") or {}
    if response.get("status_code") == 200:
        try:
            return completion_reply(ChatCompletion.model_validate(response["body"]))
        except RetryableError as empty:  # this question's fault, not the batch's
            return empty
    error = answer.get("error") or (response.get("body") or {}).get("error") or {}
    text = f"{response.get('status_code', '')} {error.get('message', 'no answer')}".strip()
    passing = response.get("status_code") in (None, 408, 409, 429, 500, 502, 503, 504)
    return RetryableError(text) if passing else UnusableAnswerError(text)
