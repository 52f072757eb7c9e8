"""Connections of the official client, and translation of its errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...roles import RetryableError
from ..providers.errors import EndpointUnusableError, error_from_status, parse_retry_after
from ..providers.settings import EndpointSettings

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

_NO_KEY = "none-needed"  # the client requires one
_NO_QUOTA = "insufficient_quota"


class OpenAIAdapter:
    """Base of the adapters of package `openai`, whose own retries are off: ours are counted.

    Args:
        timeout_seconds: of one request.
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
    """Around a request: translates the client's errors into those of `inference/roles.py`."""
    from openai import APIConnectionError, APIError, APIStatusError

    try:
        yield
    except APIStatusError as error:
        raise _status_error(error, client.api_key) from None
    except APIConnectionError as error:
        raise RetryableError(f"no connection: {error.__cause__ or error}") from None
    except APIError as error:  # a response that is not of this API
        raise RetryableError(str(error)) from None
    except ValueError as error:  # status 200 with malformed JSON
        raise RetryableError(f"unreadable answer: {error}") from None


def _status_error(error: "APIStatusError", key: str) -> Exception:
    """The error of a status; if its message quotes the key, the key is removed."""
    text = f"{error.status_code}: {error.message}".replace(key, "[key]")
    if error.code == _NO_QUOTA:
        return EndpointUnusableError(text)
    retry_after = parse_retry_after(error.response.headers.get("retry-after"))
    return error_from_status(error.status_code, text, retry_after)
