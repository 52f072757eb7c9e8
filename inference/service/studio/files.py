"""The page's own files, and what a browser may do with them."""

from http import HTTPStatus
from pathlib import Path

from starlette.responses import FileResponse, Response

from ...http.errors import APIError

FOLDER = Path(__file__).parent / "static"
# Nothing from elsewhere, nothing inline; pictures may come as data URIs.
_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Files of one version only fit each other.
    "Cache-Control": "no-cache",
}


class PageFiles:
    """The files below `static/`, by name; no other name reaches the file system."""

    def __init__(self) -> None:
        files = [path for path in FOLDER.rglob("*") if path.is_file()]
        self._paths = {path.relative_to(FOLDER).as_posix(): path for path in files}

    def response(self, name: str) -> Response:
        """One of the files.

        Raises:
            Refusal: there is none of that name.
        """
        if name not in self._paths:
            raise APIError(HTTPStatus.NOT_FOUND, "the studio has no such file", "not_found")
        return FileResponse(self._paths[name], headers=_HEADERS)
