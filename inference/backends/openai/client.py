"""The official client: connections, and what its errors mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...roles import RetryableError
from ..providers.endpoints import EndpointSettings
from ..providers.errors import EndpointUnusableError, error_from_status, parse_retry_after

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

_NO_KEY = "none-needed"  # the client insists on one
_OUT_OF_MONEY = "insufficient_quota"


class OpenAIAdapter:
    """What adapters of the `openai` package share; retries are ours, so that each is counted.

    Args:
        timeout_seconds: for one request.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds

    def connect(self, endpoint: EndpointSettings) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        return AsyncOpenAI(
            base_url=endpoint.url,
            api_key=endpoint.secret() or _NO_KEY,
            timeout=self._timeout,
            max_retries=0,
        )

    async def close(self, client: "AsyncOpenAI") -> None:
        await client.close()


@contextmanager
def translate_errors(client: "AsyncOpenAI") -> Iterator[None]:
    """Around a request: the client's errors in the words of `inference/roles.py`."""
    from openai import APIConnectionError, APIError, APIStatusError

    try:
        yield
    except APIStatusError as error:
        raise _meaning(error, client.api_key) from None
    except APIConnectionError as error:
        raise RetryableError(f"no connection: {error.__cause__ or error}") from None
    except APIError as error:  # an answer that is no answer of this API
        raise RetryableError(str(error)) from None
    except ValueError as error:  # 200, and its JSON is garbled
        raise RetryableError(f"unreadable answer: {error}") from None


def _meaning(error: "APIStatusError", key: str) -> Exception:
    """What a status means for the call; the key, should it be quoted, is taken out."""
    text = f"{error.status_code}: {error.message}".replace(key, "[key]")
    if error.code == _OUT_OF_MONEY:
        return EndpointUnusableError(text)
    after = parse_retry_after(error.response.headers.get("retry-after"))
    return error_from_status(error.status_code, text, after)
