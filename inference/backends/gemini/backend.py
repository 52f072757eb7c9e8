"""The backend `gemini`: Google's Gemini API, through google-genai.

generate_content with texts and images in and out, and its batch API with inline requests.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from warehouse import EncodedImage

from ...roles import RetryableError, UnusableAnswerError
from ..backend import RESPONDENTS, register
from ..providers.api import Api, ProviderSettings, endpoints_field
from ..providers.chat import BatchResult, CompletionRequest
from ..providers.errors import (
    EndpointUnusableError,
    NoAnswerError,
    error_from_status,
    parse_retry_after,
)
from ..providers.settings import EndpointSettings, RemoteGeneratorModel
from ..providers.structured import CompletionResult

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.errors import APIError
    from google.genai.types import GenerateContentResponse

_NO_KEY = "none-needed"  # the client requires one
_WRONG_KEY = "API_KEY_INVALID"  # comes as a 400
_RETRY_DELAY = "retryDelay"  # inside the details of a 429, as "17s"
# Finish reasons that are no refusals; every other names the reason for one.
_NORMAL_FINISHES = {"STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED"}
# Finish reasons after which the same request may succeed.
_RETRYABLE_FINISHES = {"OTHER", "IMAGE_OTHER", "MALFORMED_RESPONSE"}
_FAILED = {"JOB_STATE_FAILED", "JOB_STATE_CANCELLED"}
_DONE = {"JOB_STATE_SUCCEEDED", "JOB_STATE_PARTIALLY_SUCCEEDED", "JOB_STATE_EXPIRED"}
_DIGEST = "digest"


@dataclass(frozen=True)
class GeminiAdapter:
    """generate_content, at once or in batches; the SDK's own retries are off: ours are counted."""

    timeout_seconds: float
    max_batch_bytes = 15_000_000  # a request may have 20 MB, and images grow by a third

    def connect(self, endpoint: EndpointSettings) -> "Client":
        import httpx2
        from google.genai import Client
        from google.genai.types import HttpOptions, HttpRetryOptions

        options = HttpOptions(
            base_url=endpoint.url,
            timeout=round(self.timeout_seconds * 1000),
            # Without these, a lost connection is retried silently after 1-10 s.
            retry_options=HttpRetryOptions(attempts=1),
            # Instead of aiohttp.
            httpx_async_client=httpx2.AsyncClient(timeout=self.timeout_seconds),
        )
        return Client(api_key=endpoint.secret() or _NO_KEY, vertexai=False, http_options=options)

    async def close(self, client: "Client") -> None:
        """Close the HTTP client: the SDK does not close one that it was given."""
        http = client._api_client._http_options.httpx_async_client
        if http is not None:
            await http.aclose()

    async def complete(self, client: "Client", request: CompletionRequest) -> CompletionResult:
        with _translate_errors():
            response = await client.aio.models.generate_content(
                model=request.model, contents=_contents(request), config=_config(request)
            )
        return _parse_response(response)

    async def submit(
        self, client: "Client", name: str, requests: Mapping[str, CompletionRequest]
    ) -> str:
        from google.genai.types import InlinedRequest

        (model,) = {request.model for request in requests.values()}
        source = [
            InlinedRequest(contents=_contents(each), config=_config(each), metadata={_DIGEST: key})
            for key, each in requests.items()
        ]
        with _translate_errors():
            job = await client.aio.batches.create(
                model=model, src=source, config={"display_name": name}
            )
        return _id(job)

    async def find(self, client: "Client", name: str) -> str | None:
        with _translate_errors():
            jobs = await client.aio.batches.list(config={"page_size": 100})
            async for job in jobs:
                if job.display_name == name:
                    return _id(job)
        return None

    async def results(self, client: "Client", batch_id: str) -> Mapping[str, BatchResult] | None:
        with _translate_errors():
            job = await client.aio.batches.get(name=batch_id)
        state = job.state.value if job.state else ""
        if state in _FAILED:
            reason = job.error.message if job.error else state
            raise UnusableAnswerError(f"the batch failed: {reason}")
        if state not in _DONE:
            return None
        responses = (job.dest.inlined_responses if job.dest else None) or []
        return {(each.metadata or {}).get(_DIGEST, ""): _batch_result(each) for each in responses}


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Around a request: translates the client's errors into those of `inference/roles.py`."""
    import httpx2
    from google.genai.errors import APIError, UnknownApiResponseError

    try:
        yield
    except APIError as error:
        raise _status_error(error) from None
    except httpx2.HTTPError as error:
        never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        kind = RetryableError if never_sent else NoAnswerError
        raise kind(f"no connection: {type(error).__name__} {error}") from None
    except (UnknownApiResponseError, ValueError) as error:  # status 200 with malformed JSON
        raise NoAnswerError(f"unreadable answer: {error}") from None


def _status_error(error: "APIError") -> Exception:
    """The error of a status. The client quotes no keys."""
    text = f"{error.code} {error.status}: {error.message}"
    if _WRONG_KEY in str(error.details):
        return EndpointUnusableError(text)
    return error_from_status(error.code, text, _retry_after(error))


def _retry_after(error: "APIError") -> float | None:
    """Seconds to wait, from the header, else from the error's details."""
    headers = getattr(error.response, "headers", None) or {}
    if (seconds := parse_retry_after(headers.get("retry-after"))) is not None:
        return seconds
    details = error.details if isinstance(error.details, dict) else {}
    for detail in details.get("error", details).get("details", []):
        if isinstance(detail, dict) and _RETRY_DELAY in detail:
            return parse_retry_after(str(detail[_RETRY_DELAY]).removesuffix("s"))
    return None


def _contents(request: CompletionRequest) -> list[Any]:
    """The turns as types of the client."""
    from google.genai.types import Content, Part

    def part(each: str | EncodedImage) -> Part:
        if isinstance(each, str):
            return Part.from_text(text=each)
        return Part.from_bytes(data=each.data, mime_type=each.mime)

    return [Content(role=turn.side, parts=list(map(part, turn.parts))) for turn in request.turns]


def _config(request: CompletionRequest) -> Any:
    """System message, schema, limits and options as the client's type."""
    from google.genai.types import GenerateContentConfig

    modality: dict[str, Any] = {}
    if request.schema is not None:
        schema = request.schema
        modality = {"response_mime_type": "application/json", "response_json_schema": schema}
    if request.returns_image:
        modality = {"response_modalities": ["IMAGE"]}
    return GenerateContentConfig(
        system_instruction=request.system,
        max_output_tokens=request.max_tokens,
        temperature=request.temperature,
        seed=request.seed,
        **modality | request.options,
    )


def _parse_response(response: "GenerateContentResponse") -> CompletionResult:
    """Raises `NoAnswerError` if the response has no candidates, or generation failed."""
    candidate = response.candidates[0] if response.candidates else None
    feedback, usage = response.prompt_feedback, response.usage_metadata
    blocked = feedback.block_reason if feedback else None
    if candidate is None and blocked is None:
        raise NoAnswerError("an answer without candidates")
    finish = candidate.finish_reason.value if candidate and candidate.finish_reason else "STOP"
    if finish in _RETRYABLE_FINISHES:
        raise NoAnswerError(f"the model stopped: {finish}")
    parts = (candidate.content.parts or []) if candidate and candidate.content else []
    parts = [part for part in parts if not part.thought]
    output_tokens = (usage.candidates_token_count, usage.thoughts_token_count) if usage else ()
    return CompletionResult(
        text="".join(part.text for part in parts if part.text),
        is_complete=finish != "MAX_TOKENS",
        refusal=blocked.value if blocked else None if finish in _NORMAL_FINISHES else finish,
        images=tuple(
            EncodedImage(part.inline_data.data)
            for part in parts
            if part.inline_data and part.inline_data.data
        ),
        input_tokens=(usage.prompt_token_count or 0) if usage else 0,
        output_tokens=sum(count or 0 for count in output_tokens),
        cached_tokens=(usage.cached_content_token_count or 0) if usage else 0,
    )


def _id(job: Any) -> str:
    if not job.name:
        raise RetryableError("a batch without a name")
    return str(job.name)


def _batch_result(inlined: Any) -> BatchResult:
    if inlined.response is None:
        return RetryableError(inlined.error.message if inlined.error else "no answer")
    try:
        return _parse_response(inlined.response)
    except RetryableError as error:
        return error


@register
class GeminiSettings(ProviderSettings):
    """Google's Gemini API."""

    backend = "gemini"
    summary = "Google, where `roles` names gemini"
    plays = ("planner", "generator", "critic", "scorer", *RESPONDENTS)
    package = "google-genai"
    api = Api("https://generativelanguage.googleapis.com", "/v1beta/models", "x-goog-api-key", "")

    endpoints: list[EndpointSettings] = endpoints_field(key="GEMINI_API_KEY")
    generator: RemoteGeneratorModel | None = Field(None, description="The generator")

    def adapter(self) -> GeminiAdapter:
        return GeminiAdapter(self.timeout_seconds)
