"""The batch API of Gemini, with its requests inline."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...roles import RetryableError, UnusableAnswerError
from ..providers.batches import Outcome
from ..providers.chat import CompletionRequest
from .chat import GeminiAdapter, config_of, content_reply, contents_of, translate_errors

if TYPE_CHECKING:
    from google.genai import Client

_FAILED = {"JOB_STATE_FAILED", "JOB_STATE_CANCELLED"}
_DONE = {"JOB_STATE_SUCCEEDED", "JOB_STATE_PARTIALLY_SUCCEEDED", "JOB_STATE_EXPIRED"}
_DIGEST = "digest"
_SEARCHED = 500  # batches of the key, newest first


class GeminiBatches(GeminiAdapter):
    """Adapter of batches of generate_content."""

    batch_bytes = 15_000_000  # a request may have 20 MB, and pictures grow by a third

    async def submit(
        self, client: "Client", name: str, questions: Mapping[str, CompletionRequest]
    ) -> str:
        (model,) = {question.model for question in questions.values()}
        requests = [_request(digest, question) for digest, question in questions.items()]
        with translate_errors():
            job = await client.aio.batches.create(
                model=model, src=requests, config={"display_name": name}
            )
        return _id(job)

    async def find(self, client: "Client", name: str) -> str | None:
        with translate_errors():
            number = 0
            async for job in await client.aio.batches.list(config={"page_size": 100}):
                if job.display_name == name:
                    return _id(job)
                number += 1
                if number >= _SEARCHED:
                    return None
        return None

    async def outcomes(self, client: "Client", batch: str) -> Mapping[str, Outcome] | None:
        with translate_errors():
            job = await client.aio.batches.get(name=batch)
        state = job.state.value if job.state else ""
        if state in _FAILED:
            raise UnusableAnswerError(
                f"the batch failed: {job.error.message if job.error else state}"
            )
        if state not in _DONE:
            return None
        answers = (job.dest.inlined_responses if job.dest else None) or []
        return {(answer.metadata or {}).get(_DIGEST, ""): _outcome(answer) for answer in answers}


def _request(digest: str, question: CompletionRequest) -> Any:
    from google.genai.types import InlinedRequest

    return InlinedRequest(
        contents=contents_of(question), config=config_of(question), metadata={_DIGEST: digest}
    )


def _id(job: Any) -> str:
    if not job.name:
        raise RetryableError("a batch without a name")
    return str(job.name)


def _outcome(answer: Any) -> Outcome:
    if answer.response is None:
        return RetryableError(answer.error.message if answer.error else "no answer")
    try:
        return content_reply(answer.response)
    except RetryableError as error:
        return error
