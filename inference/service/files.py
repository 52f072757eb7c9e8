"""The Files API, `/v1/files`: images that requests name as `input_image` with a `file_id`.

One SQLite file below the home has them, with their bytes. A deleted file is gone; a generation that
began with it has its own copy in the image store.
"""

import asyncio
import secrets
import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import FastAPI, Query, Request, Response

from warehouse import EncodedImage, Home
from warehouse.sqlite_file import SqliteFile

from ..http.body_reader import BodyReader, check_image
from ..http.errors import APIError, bad_request, not_found
from .openapi import describe_response
from .request_parsing import Json
from .serving import Order, owner_of, page_of
from .settings import RequestLimits

_PURPOSES = ("vision", "user_data")
_MAX_NAME_LENGTH = 255
_MAX_FIELDS = 8
_PAGE = 10_000
# Opened in place, a file must not run as a page of this origin.
_CONTENT_HEADERS = {
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private",
}
_FORM: Json = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "PNG, JPEG or WebP"},
        "purpose": {"type": "string", "enum": [*_PURPOSES]},
    },
    "additionalProperties": False,
}


_COLUMNS = "id, owner, created_at, filename, purpose, bytes"
_CREATE_TABLES = (
    """
    CREATE TABLE files (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        filename TEXT NOT NULL,
        purpose TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        content BLOB NOT NULL
    )
    """,
    "CREATE INDEX owned ON files (owner, number)",
)


@dataclass(frozen=True)
class StoredFile:
    """An uploaded file without its bytes. `owner`: see `StoredResponse`; `bytes`: how many."""

    id: str
    owner: str
    created_at: int
    filename: str
    purpose: str
    bytes: int


class Quota(NamedTuple):
    """How many files an owner may have, and of how many bytes in all."""

    files: int
    bytes: int


Files = list[StoredFile]


class FileStore:
    """The files of a home's clients; safe to use from several threads.

    Raises (all methods):
        StorageError: the store cannot be read or written.
    """

    def __init__(self, home: Home) -> None:
        self._file = SqliteFile(home.local / "service" / "files.sqlite", _CREATE_TABLES)

    def add(
        self, owner: str, filename: str, purpose: str, content: bytes, quota: Quota
    ) -> StoredFile | None:
        """Store a file; None: the owner's files would exceed the quota."""
        file = StoredFile(
            f"file-{secrets.token_hex(16)}",
            owner,
            int(time.time()),
            filename,
            purpose,
            len(content),
        )
        statement = f"INSERT INTO files ({_COLUMNS}, content) VALUES (?, ?, ?, ?, ?, ?, ?)"
        with self._file.transaction() as connection:
            query = "SELECT count(*), coalesce(sum(bytes), 0) FROM files WHERE owner = ?"
            files, size = connection.execute(query, (owner,)).fetchone()
            if files >= quota.files or size + len(content) > quota.bytes:
                return None
            connection.execute(statement, (*vars(file).values(), content))
        return file

    def get(self, file_id: str, owner: str) -> StoredFile | None:
        found = self._select("id = ? AND owner = ?", file_id, owner)
        return found[0] if found else None

    def content(self, file_id: str, owner: str) -> bytes | None:
        """The bytes of a file; None: the owner has no such file."""
        query = "SELECT content FROM files WHERE id = ? AND owner = ?"
        with self._file.transaction() as connection:
            row = connection.execute(query, (file_id, owner)).fetchone()
        return row and bytes(row[0])

    def list(self, owner: str, purpose: str | None, order: Order) -> Files:
        """An owner's files, by the time of their upload."""
        condition = "owner = ? AND (? IS NULL OR purpose = ?) ORDER BY number"
        return self._select(f"{condition} {order}", owner, purpose, purpose)

    def delete(self, file_id: str, owner: str) -> bool:
        """Delete a file; False: the owner has no such file."""
        statement = "DELETE FROM files WHERE id = ? AND owner = ?"
        with self._file.transaction() as connection:
            return connection.execute(statement, (file_id, owner)).rowcount > 0

    def _select(self, condition: str, *values: Any) -> Files:
        query = f"SELECT {_COLUMNS} FROM files WHERE {condition}"
        with self._file.transaction() as connection:
            return [StoredFile(*row) for row in connection.execute(query, values)]


@dataclass(frozen=True)
class FilesServing:
    """Uploads, lists, returns and deletes files of the caller's key."""

    files: FileStore
    bodies: BodyReader
    limits: RequestLimits

    def add_routes(self, app: FastAPI) -> None:
        path, described = "/v1/files/{file_id}", describe_response("FileObject")
        body = {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}
        add_upload = app.post("/v1/files", responses=described, openapi_extra={"requestBody": body})
        add_upload(self.upload_file)
        app.get("/v1/files", responses=describe_response("FileList"))(self.list_files)
        app.get(path, responses=described)(self.retrieve_file)
        app.delete(path, responses=describe_response("FileDeleted"))(self.delete_file)
        app.get(f"{path}/content", response_class=Response, responses=_content_response())(
            self.file_content
        )

    async def upload_file(self, request: Request) -> Json:
        """Store an image."""
        fields, uploads = await self.bodies.read_form(request, 1, _MAX_FIELDS)
        if unknown := {*fields, *(each.field for each in uploads)} - {"file", "purpose"}:
            name = min(unknown)
            raise bad_request(f"{name} is not supported here: leave it out", name)
        if not uploads:
            raise bad_request("file is missing", "file", "missing_required_parameter")
        purpose = fields.get("purpose")
        if purpose not in _PURPOSES:
            message = f"purpose: {purpose} is not supported here: send {' or '.join(_PURPOSES)}"
            raise bad_request(message, "purpose")
        await self._check(uploads[0].content)
        return await self._add(owner_of(request), uploads[0].filename, purpose, uploads[0].content)

    async def list_files(
        self,
        request: Request,
        after: Annotated[str | None, Query(max_length=100)] = None,
        limit: Annotated[int, Query(ge=1, le=_PAGE)] = _PAGE,
        order: Order = "desc",
        purpose: Annotated[str | None, Query(max_length=100)] = None,
    ) -> Json:
        """A page of files, by the time of their upload."""
        files = await asyncio.to_thread(self.files.list, owner_of(request), purpose, order)
        return page_of([_describe(file) for file in files], after, limit, "file")

    async def retrieve_file(self, request: Request, file_id: str) -> Json:
        """A file without its bytes."""
        file = await asyncio.to_thread(self.files.get, file_id, owner_of(request))
        if file is None:
            raise _no_file(file_id)
        return _describe(file)

    async def delete_file(self, request: Request, file_id: str) -> Json:
        """Delete a file and its bytes; responses that began with it keep their own copy."""
        if not await asyncio.to_thread(self.files.delete, file_id, owner_of(request)):
            raise _no_file(file_id)
        return {"id": file_id, "object": "file", "deleted": True}

    async def file_content(self, request: Request, file_id: str) -> Response:
        """The bytes of a file."""
        content = await asyncio.to_thread(self.files.content, file_id, owner_of(request))
        if content is None:
            raise _no_file(file_id)
        media_type = EncodedImage(content).mime
        return Response(content, media_type=media_type, headers=_CONTENT_HEADERS)

    async def _check(self, content: bytes) -> None:
        """Raise APIError if the content is no image that a request may have."""
        most = self.limits.picture_bytes
        if len(content) > most:
            message = f"file has {len(content)} bytes; at most {most} are allowed"
            raise bad_request(message, "file", "image_file_too_large")
        if not content:
            raise bad_request("file is empty", "file", "empty_image_file")
        await asyncio.to_thread(check_image, content, "file", self.limits.pixels)

    async def _add(self, owner: str, filename: str, purpose: str, content: bytes) -> Json:
        quota = Quota(self.limits.files, self.limits.files_bytes)
        name = filename[:_MAX_NAME_LENGTH] or "image"
        file = await asyncio.to_thread(self.files.add, owner, name, purpose, content, quota)
        if file is None:
            message = f"file: at most {quota.files} files of {quota.bytes} bytes in all are stored"
            raise bad_request(f"{message}; delete some", "file", "too_many_files")
        return _describe(file)


def _describe(file: StoredFile) -> Json:
    fields = {name: value for name, value in asdict(file).items() if name != "owner"}
    return fields | {"object": "file", "status": "processed"}


def _no_file(file_id: str) -> APIError:
    return not_found(f"there is no file {file_id}", "file_id")


def _content_response() -> dict[int | str, Any]:
    """What the route of a file's bytes answers."""
    images = ("image/png", "image/jpeg", "image/webp")
    schema = {"schema": {"type": "string", "format": "binary"}}
    error = describe_response("FileObject")["default"]
    return {
        200: {"description": "The file", "content": dict.fromkeys(images, schema)},
        "default": error,
    }
