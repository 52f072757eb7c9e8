"""generate_content through the official client, with texts and images in and out."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from warehouse import EncodedImage

from ...roles import RetryableError
from ..providers.chat import ChatTurn, CompletionRequest, CompletionResult
from ..providers.errors import EndpointUnusableError, error_from_status, parse_retry_after
from ..providers.settings import EndpointSettings

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.errors import APIError
    from google.genai.types import GenerateContentResponse, Part

_NO_KEY = "none-needed"  # the client requires one
_WRONG_KEY = "API_KEY_INVALID"  # comes as a 400
_RETRY_DELAY = "retryDelay"  # inside the details of a 429, as "17s"
# Finish reasons that are no refusals; every other names the reason for one.
_NORMAL_FINISHES = {"STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED"}
# Finish reasons after which the same request may succeed.
_RETRYABLE_FINISHES = {"OTHER", "IMAGE_OTHER", "MALFORMED_RESPONSE"}


class GeminiAdapter:
    """Base of the adapters of package `google-genai`, whose own retries are off: ours are counted.

    Args:
        timeout_seconds: of one request.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds

    def connect(self, endpoint: EndpointSettings) -> "Client":
        import httpx2
        from google.genai import Client
        from google.genai.types import HttpOptions, HttpRetryOptions

        options = HttpOptions(
            base_url=endpoint.url,
            timeout=round(self._timeout * 1000),
            # Without these, a lost connection is retried silently after 1-10 s.
            retry_options=HttpRetryOptions(attempts=1),
            httpx_async_client=httpx2.AsyncClient(timeout=self._timeout),  # instead of aiohttp
        )
        return Client(api_key=endpoint.secret() or _NO_KEY, vertexai=False, http_options=options)

    async def close(self, client: "Client") -> None:
        """Close the HTTP client: the SDK does not close one that it was given."""
        http = client._api_client._http_options.httpx_async_client
        if http is not None:
            await http.aclose()


class GeminiChat(GeminiAdapter):
    """Adapter of generate_content."""

    async def complete(self, client: "Client", request: CompletionRequest) -> CompletionResult:
        with translate_errors():
            response = await client.aio.models.generate_content(
                model=request.model, contents=contents_of(request), config=config_of(request)
            )
        return parse_response(response)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Around a request: translates the client's errors into those of `inference/roles.py`."""
    import httpx2
    from google.genai.errors import APIError, UnknownApiResponseError

    try:
        yield
    except APIError as error:
        raise _status_error(error) from None
    except httpx2.HTTPError as error:
        raise RetryableError(f"no connection: {type(error).__name__} {error}") from None
    except (UnknownApiResponseError, ValueError) as error:  # status 200 with malformed JSON
        raise RetryableError(f"unreadable answer: {error}") from None


def contents_of(request: CompletionRequest) -> list[Any]:
    """The turns as types of the client."""
    from google.genai.types import Content

    return [Content(role=turn.side, parts=list(_parts(turn))) for turn in request.turns]


def _parts(turn: ChatTurn) -> Iterable[Any]:
    from google.genai.types import Part

    for part in turn.parts:
        if isinstance(part, str):
            yield Part.from_text(text=part)
        else:
            yield Part.from_bytes(data=part.data, mime_type=part.mime)


def config_of(request: CompletionRequest) -> Any:
    """System message, schema, limits and options as the client's type."""
    from google.genai.types import GenerateContentConfig

    modality: dict[str, Any] = {}
    if request.schema is not None:
        modality = {
            "response_mime_type": "application/json",
            "response_json_schema": request.schema,
        }
    if request.returns_image:
        modality = {"response_modalities": ["IMAGE"]}
    return GenerateContentConfig(
        system_instruction=request.system,
        max_output_tokens=request.max_tokens,
        temperature=request.temperature,
        seed=request.seed,
        **modality | request.options,
    )


def parse_response(response: "GenerateContentResponse") -> CompletionResult:
    """The result that a response holds.

    Raises:
        RetryableError: it has no candidates, or generation failed.
    """
    candidate = response.candidates[0] if response.candidates else None
    feedback, usage = response.prompt_feedback, response.usage_metadata
    blocked = feedback.block_reason if feedback else None
    if candidate is None and blocked is None:
        raise RetryableError("an answer without candidates")
    finish = candidate.finish_reason.value if candidate and candidate.finish_reason else "STOP"
    if finish in _RETRYABLE_FINISHES:
        raise RetryableError(f"the model stopped: {finish}")
    parts = (candidate.content.parts or []) if candidate and candidate.content else []
    return CompletionResult(
        text="".join(part.text for part in parts if part.text and not part.thought),
        is_complete=finish != "MAX_TOKENS",
        refusal=blocked.value if blocked else None if finish in _NORMAL_FINISHES else finish,
        images=tuple(EncodedImage(data) for data in map(_image_data, parts) if data),
        input_tokens=(usage.prompt_token_count or 0) if usage else 0,
        output_tokens=_output_tokens(usage),
        cached_tokens=(usage.cached_content_token_count or 0) if usage else 0,
    )


def _image_data(part: "Part") -> bytes | None:
    """The image in a part of an answer; None for images of the model's reasoning."""
    return part.inline_data.data if part.inline_data and not part.thought else None


def _output_tokens(usage: Any) -> int:
    """Output tokens as they are priced, reasoning included."""
    if usage is None:
        return 0
    return (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)


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
