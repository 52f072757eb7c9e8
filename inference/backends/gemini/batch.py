"""The batch API of Gemini, with inline requests."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...roles import RetryableError, UnusableAnswerError
from ..providers.batches import BatchResult, find_batch
from ..providers.chat import CompletionRequest
from .chat import GeminiAdapter, config_of, contents_of, parse_response, translate_errors

if TYPE_CHECKING:
    from google.genai import Client

_FAILED = {"JOB_STATE_FAILED", "JOB_STATE_CANCELLED"}
_DONE = {"JOB_STATE_SUCCEEDED", "JOB_STATE_PARTIALLY_SUCCEEDED", "JOB_STATE_EXPIRED"}
_DIGEST = "digest"


class GeminiBatches(GeminiAdapter):
    """Adapter of batches of generate_content."""

    max_batch_bytes = 15_000_000  # a request may have 20 MB, and images grow by a third

    async def submit(
        self, client: "Client", name: str, requests: Mapping[str, CompletionRequest]
    ) -> str:
        (model,) = {request.model for request in requests.values()}
        source = [_inlined_request(digest, request) for digest, request in requests.items()]
        with translate_errors():
            job = await client.aio.batches.create(
                model=model, src=source, config={"display_name": name}
            )
        return _id(job)

    async def find(self, client: "Client", name: str) -> str | None:
        with translate_errors():
            jobs = await client.aio.batches.list(config={"page_size": 100})
            job = await find_batch(jobs, lambda job: job.display_name == name)
        return _id(job) if job else None

    async def results(self, client: "Client", batch_id: str) -> Mapping[str, BatchResult] | None:
        with translate_errors():
            job = await client.aio.batches.get(name=batch_id)
        state = job.state.value if job.state else ""
        if state in _FAILED:
            raise UnusableAnswerError(
                f"the batch failed: {job.error.message if job.error else state}"
            )
        if state not in _DONE:
            return None
        responses = (job.dest.inlined_responses if job.dest else None) or []
        return {(each.metadata or {}).get(_DIGEST, ""): _result(each) for each in responses}


def _inlined_request(digest: str, request: CompletionRequest) -> Any:
    from google.genai.types import InlinedRequest

    return InlinedRequest(
        contents=contents_of(request), config=config_of(request), metadata={_DIGEST: digest}
    )


def _id(job: Any) -> str:
    if not job.name:
        raise RetryableError("a batch without a name")
    return str(job.name)


def _result(inlined: Any) -> BatchResult:
    if inlined.response is None:
        return RetryableError(inlined.error.message if inlined.error else "no answer")
    try:
        return parse_response(inlined.response)
    except RetryableError as error:
        return error
