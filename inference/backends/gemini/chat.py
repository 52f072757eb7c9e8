"""generate_content through the official client: texts, pictures, and answers of both."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from warehouse import EncodedImage

from ...roles import RetryableError
from ..providers.chat import ChatTurn, CompletionRequest, CompletionResult
from ..providers.endpoints import EndpointSettings
from ..providers.errors import EndpointUnusableError, error_from_status, parse_retry_after

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.errors import APIError
    from google.genai.types import GenerateContentResponse, Part

_NO_KEY = "none-needed"  # the client insists on one
_WRONG_KEY = "API_KEY_INVALID"  # comes as a 400
_DELAY = "retryDelay"  # inside the details of a 429, as "17s"
# Ends that are no refusals; every other names what was against it.
_ENDS = {"STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED"}
# Ends after which the same request may go well.
_PASSING_ENDS = {"OTHER", "IMAGE_OTHER", "MALFORMED_RESPONSE"}


class GeminiAdapter:
    """What adapters of the `google-genai` package share; retries are ours, so that each is counted.

    Args:
        timeout_seconds: for one request.
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
            # Without these, a lost connection is tried again after 1-10 s, unseen.
            retry_options=HttpRetryOptions(attempts=1),
            httpx_async_client=httpx2.AsyncClient(timeout=self._timeout),  # and not aiohttp
        )
        return Client(api_key=endpoint.secret() or _NO_KEY, vertexai=False, http_options=options)

    async def close(self, client: "Client") -> None:
        """Ours are ours to close."""
        http = client._api_client._http_options.httpx_async_client
        if http is not None:
            await http.aclose()


class GeminiChat(GeminiAdapter):
    """Adapter of generate_content."""

    async def answer(self, client: "Client", question: CompletionRequest) -> CompletionResult:
        with translate_errors():
            response = await client.aio.models.generate_content(
                model=question.model, contents=contents_of(question), config=config_of(question)
            )
        return content_reply(response)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Around a request: the client's errors in the words of `inference/roles.py`."""
    import httpx2
    from google.genai.errors import APIError, UnknownApiResponseError

    try:
        yield
    except APIError as error:
        raise _meaning(error) from None
    except httpx2.HTTPError as error:
        raise RetryableError(f"no connection: {type(error).__name__} {error}") from None
    except (UnknownApiResponseError, ValueError) as error:  # 200, and its JSON is garbled
        raise RetryableError(f"unreadable answer: {error}") from None


def contents_of(question: CompletionRequest) -> list[Any]:
    """Turns as the client has them."""
    from google.genai.types import Content

    return [Content(role=turn.side, parts=list(_parts(turn))) for turn in question.turns]


def _parts(turn: ChatTurn) -> Iterable[Any]:
    from google.genai.types import Part

    for part in turn.parts:
        if isinstance(part, str):
            yield Part.from_text(text=part)
        else:
            yield Part.from_bytes(data=part.data, mime_type=part.mime)


def config_of(question: CompletionRequest) -> Any:
    """Everything else that is sent."""
    from google.genai.types import GenerateContentConfig

    form: dict[str, Any] = {}
    if question.schema is not None:
        form = {"response_mime_type": "application/json", "response_json_schema": question.schema}
    if question.draws:
        form = {"response_modalities": ["IMAGE"]}
    return GenerateContentConfig(
        system_instruction=question.system,
        max_output_tokens=question.max_tokens,
        temperature=question.temperature,
        seed=question.seed,
        **form | question.options,
    )


def content_reply(response: "GenerateContentResponse") -> CompletionResult:
    """What a response says.

    Raises:
        TryLater: nothing, or it broke off.
    """
    candidate = response.candidates[0] if response.candidates else None
    feedback, usage = response.prompt_feedback, response.usage_metadata
    blocked = feedback.block_reason if feedback else None
    if candidate is None and blocked is None:
        raise RetryableError("an answer without candidates")
    end = candidate.finish_reason.value if candidate and candidate.finish_reason else "STOP"
    if end in _PASSING_ENDS:
        raise RetryableError(f"the model stopped: {end}")
    parts = (candidate.content.parts or []) if candidate and candidate.content else []
    return CompletionResult(
        text="".join(part.text for part in parts if part.text and not part.thought),
        whole=end != "MAX_TOKENS",
        refusal=blocked.value if blocked else None if end in _ENDS else end,
        pictures=tuple(EncodedImage(data) for data in map(_drawn, parts) if data),
        input_tokens=(usage.prompt_token_count or 0) if usage else 0,
        output_tokens=_written(usage),
        cached_tokens=(usage.cached_content_token_count or 0) if usage else 0,
    )


def _drawn(part: "Part") -> bytes | None:
    """The picture in a part of an answer, unless it is one that the model only thought of."""
    return part.inline_data.data if part.inline_data and not part.thought else None


def _written(usage: Any) -> int:
    """Output tokens as they are priced: thoughts included."""
    if usage is None:
        return 0
    return (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)


def _meaning(error: "APIError") -> Exception:
    """What a status means for the call. The client quotes no keys."""
    text = f"{error.code} {error.status}: {error.message}"
    if _WRONG_KEY in str(error.details):
        return EndpointUnusableError(text)
    return error_from_status(error.code, text, _delay(error))


def _delay(error: "APIError") -> float | None:
    """Seconds asked for: in the header, else in the error's details."""
    headers = getattr(error.response, "headers", None) or {}
    if (after := parse_retry_after(headers.get("retry-after"))) is not None:
        return after
    details = error.details if isinstance(error.details, dict) else {}
    for detail in details.get("error", details).get("details", []):
        if isinstance(detail, dict) and _DELAY in detail:
            return parse_retry_after(str(detail[_DELAY]).removesuffix("s"))
    return None
