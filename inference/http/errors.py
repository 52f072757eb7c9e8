"""API errors in OpenAI's shape, and how exceptions become them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

Model = TypeVar("Model", bound=BaseModel)

CLIENT_CLOSED = 499
"""nginx's status where the client disconnected before there was a response."""

_RETRY_SECONDS = 5
_MAX_LENGTH = 500  # of what a client sent, in a message
_UNKNOWN = "unknown_field"

MAX_TEXT_LENGTH = 200_000
"""Characters of a text in a request."""

UNSUPPORTED, BAD_BASE64, TOO_LONG = (
    "unsupported_value",
    "invalid_base64_image",
    "string_above_max_length",
)
"""Types of validation errors that are the codes of their API errors as well."""


class RequestModel(
    BaseModel, extra="forbid", frozen=True, strict=True, str_max_length=MAX_TEXT_LENGTH
):
    """The form of a request, or of a part of one; unknown fields are an error.

    Their names are checked first: pydantic would build an error for each of a million.
    """

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, content: object) -> object:
        known = cls.model_fields
        if isinstance(content, dict):
            for name in content:
                if name not in known:
                    hint = {"name": _shorten(str(name)), "known": ", ".join(known)}
                    raise PydanticCustomError(_UNKNOWN, "unknown field {name}", hint)
        return content


@dataclass(eq=False)
class APIError(Exception):
    """An error response.

    Args:
        param: the field of the request that caused it.
        retry_after: seconds after which the same request may succeed.
        retry: whether OpenAI's clients should retry by themselves (`X-Should-Retry`); None: their
            own rules apply.
    """

    status: HTTPStatus
    message: str
    code: str | None = None
    param: str | None = None
    retry_after: int | None = None
    retry: bool | None = None

    def __str__(self) -> str:
        return self.message

    @property
    def error(self) -> dict[str, Any]:
        """The field `error` of the body, in OpenAI's shape."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            kind = "rate_limit_error"
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    def response(self) -> JSONResponse:
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.retry is not None:
            headers["X-Should-Retry"] = str(self.retry).lower()
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse({"error": self.error}, self.status, headers)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> APIError:
    return APIError(HTTPStatus.BAD_REQUEST, message, code, param)


def not_found(message: str, param: str | None = None, code: str = "not_found") -> APIError:
    return APIError(HTTPStatus.NOT_FOUND, message, code, param)


def too_many_requests(message: str, code: str, retry_after: int = _RETRY_SECONDS) -> APIError:
    return APIError(HTTPStatus.TOO_MANY_REQUESTS, message, code, retry_after=retry_after)


def unavailable(message: str, code: str, retry_after: int = _RETRY_SECONDS) -> APIError:
    return APIError(HTTPStatus.SERVICE_UNAVAILABLE, message, code, retry_after=retry_after)


def internal_error() -> APIError:
    """A bug of ours (500): details are in the server's log, not in the response."""
    message = "internal server error; the server's log has the details"
    return APIError(HTTPStatus.INTERNAL_SERVER_ERROR, message)


def validate(content: object, model: type[Model]) -> Model:
    """Parsed JSON or form fields as a request.

    Raises:
        APIError: it does not have the model's form.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise _invalid(*_clearest(problems, content)) from None


def install_error_handlers(app: Starlette) -> None:
    """Answer every error of an application in OpenAI's shape."""
    for kind in (APIError, HTTPException, RequestValidationError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _respond)


def _clearest(problems: Sequence[Any], content: object) -> tuple[Any, list[int | str], str]:
    """The deepest of pydantic's problems, its place in the request's own words, and what is wrong.

    Where a field may have several forms, pydantic has a problem for each: the deepest belongs to
    the form that fits best; problems of one place are joined.
    """
    places = [list(_place(problem, content)) for problem in problems]
    deepest = max(places, key=len)
    found = [problem for problem, place in zip(problems, places, strict=True) if place == deepest]
    return found[0], deepest, ", or ".join(dict.fromkeys(problem["msg"] for problem in found))


def _place(problem: Any, content: Any) -> Iterator[int | str]:
    """The parts of a location that are in the request; others name pydantic's own alternatives."""
    location = problem["loc"]
    for number, part in enumerate(location):
        if isinstance(content, dict) and part in content:
            content = content[part]
            yield part
        elif isinstance(content, list) and isinstance(part, int):
            content = content[part] if part < len(content) else None
            yield part
        elif problem["type"] == "missing" and number == len(location) - 1:
            yield part


def _invalid(problem: Any, location: Sequence[int | str], message: str) -> APIError:
    """A problem that pydantic found, with the field's name as the client sent it."""
    kind = problem["type"]
    if kind == _UNKNOWN:
        unknown = _shorten(".".join(map(str, (*location, problem["ctx"]["name"]))))
        message = f"unknown field {unknown}; known fields: {problem['ctx']['known']}"
        return bad_request(message, unknown, "unknown_parameter")
    name = _shorten(".".join(map(str, location))) or None
    if kind == "missing":
        return bad_request(f"{name} is missing", name, "missing_required_parameter")
    message = _shorten(message.removeprefix("Value error, "))
    code = kind if kind in (UNSUPPORTED, BAD_BASE64, TOO_LONG) else "invalid_value"
    return bad_request(f"{name}: {message}" if name else message, name, code)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."


async def _respond(request: Request, error: Exception) -> Response:
    match error:
        case APIError():
            return error.response()
        case ClientDisconnect():
            return Response(status_code=CLIENT_CLOSED)  # for the log: nobody reads it
        case HTTPException(status_code=status, detail=detail):
            message = f"{request.method} {request.url.path}: {detail}"
            response = APIError(HTTPStatus(status), message).response()
            if status == HTTPStatus.METHOD_NOT_ALLOWED:
                response.headers["Allow"] = ", ".join(sorted(_allowed_methods(request)))
            return response
        case RequestValidationError():
            first = error.errors()[0]
            return _invalid(first, first["loc"][1:], first["msg"]).response()  # without "query"
    return internal_error().response()


def _allowed_methods(request: Request) -> set[str]:
    """Methods of a path, over all its routes."""
    matching = (
        route
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    )
    return {method for route in matching for method in route.methods or ()}
