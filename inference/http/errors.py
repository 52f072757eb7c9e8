"""Refused requests, in the shape of OpenAI's errors."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

_TYPES = {429: "rate_limit_error"}


class APIError(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP.
        param: the field of the request that is to blame.
        retry_after: seconds after which the same request may be taken.
        retry: what OpenAI's clients are told about trying again by themselves; None: nothing.
    """

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
        retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after, self.retry = retry_after, retry

    @property
    def error(self) -> dict[str, Any]:
        """As clients of OpenAI read it."""
        kind = _TYPES.get(self.status) or (
            "server_error" if self.status >= 500 else "invalid_request_error"
        )
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    def response(self) -> JSONResponse:
        """The answer."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.retry is not None:
            headers["X-Should-Retry"] = str(self.retry).lower()
        return JSONResponse({"error": self.error}, self.status, headers)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> APIError:
    """The request itself is to blame (400)."""
    return APIError(HTTPStatus.BAD_REQUEST, message, code, param)


def internal_error() -> APIError:
    """A fault of ours, which the server's log tells and the answer does not (500)."""
    return APIError(
        HTTPStatus.INTERNAL_SERVER_ERROR, "something went wrong here; its log says what"
    )


def install_error_handlers(app: FastAPI) -> None:
    """Have every error of an application answered in OpenAI's shape."""
    app.add_exception_handler(HTTPException, _no_such_endpoint)
    app.add_exception_handler(APIError, _refused)
    app.add_exception_handler(Exception, _failed)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, APIError)
    return error.response()


async def _no_such_endpoint(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    response = APIError(HTTPStatus(error.status_code), message).response()
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers["Allow"] = ", ".join(sorted(_methods(request)))
    return response


def _methods(request: Request) -> set[str]:
    """What the path takes, over all of its routes."""
    fitting = (
        route
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    )
    return {method for route in fitting for method in route.methods or ()}


async def _failed(request: Request, error: Exception) -> Response:
    return internal_error().response()
