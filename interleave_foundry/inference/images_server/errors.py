"""Refused requests, in the shape of OpenAI's errors."""

from http import HTTPStatus

from fastapi.responses import JSONResponse

_TYPES = {429: "rate_limit_error"}


class Refusal(Exception):  # noqa: N818 - reads as what it is
    """An answer that is an error.

    Args:
        status: of HTTP.
        param: the field of the request that is to blame.
        retry_after: seconds after which the same request may be taken.
    """

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after = retry_after

    def response(self) -> JSONResponse:
        """As clients of OpenAI read it."""
        kind = _TYPES.get(self.status) or (
            "server_error" if self.status >= 500 else "invalid_request_error"
        )
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return JSONResponse({"error": error}, self.status, headers)


def wrong(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """The request itself is to blame (400)."""
    return Refusal(HTTPStatus.BAD_REQUEST, message, code, param)


def went_wrong() -> Refusal:
    """A fault of ours, which the server's log tells and the answer does not (500)."""
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "something went wrong here; its log says what")
