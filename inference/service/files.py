"""The Files API, `/v1/files`: images that requests name as `input_image` with a `file_id`.

One SQLite file below the home has them, with their bytes. A deleted file is gone; a generation that
began with it has its own copy in the image store.
"""

import asyncio
import secrets
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from warehouse import EncodedImage, Home
from warehouse.sqlite_file import SqliteFile

from ..http.body_reader import BodyReader
from ..http.errors import APIError, RequestModel, bad_request, not_found, validate
from .openapi import IMAGE_FILE, describe_body
from .request_parsing import check_input_image
from .serving import SANDBOX_HEADERS, Deleted, Order, Page, owner_of, page_of
from .settings import RequestLimits

Purpose = Literal["vision", "user_data"]

_MAX_NAME_LENGTH = 255
_MAX_FIELDS = 8
_PAGE = 10_000
_COLUMNS = "id, created_at, filename, purpose, bytes"
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


class FileUpload(RequestModel):
    """The form of an upload."""

    file: bytes = Field(description="PNG, JPEG or WebP")
    purpose: Purpose


class FileObject(BaseModel):
    """An uploaded file without its bytes."""

    id: str
    bytes: int = Field(description="How many it has")
    created_at: int = Field(description="Seconds since 1970")
    filename: str
    object: Literal["file"] = "file"
    purpose: Purpose
    status: Literal["processed"] = "processed"


class FileStore:
    """The files of a home's clients; safe to use from several threads.

    `owner`: id of the client's API key. Raises (all methods):
        StorageError: the store cannot be read or written.
    """

    def __init__(self, home: Home) -> None:
        self._file = SqliteFile(home.local / "service" / "files.sqlite", _CREATE_TABLES)

    def add(
        self, owner: str, filename: str, purpose: Purpose, content: bytes, limits: RequestLimits
    ) -> FileObject | None:
        """Store a file; None: the owner's files would exceed the limits."""
        file = FileObject(
            id=f"file-{secrets.token_hex(16)}",
            bytes=len(content),
            created_at=int(time.time()),
            filename=filename,
            purpose=purpose,
        )
        values = [getattr(file, name) for name in _COLUMNS.split(", ")]
        statement = f"INSERT INTO files ({_COLUMNS}, owner, content) VALUES (?, ?, ?, ?, ?, ?, ?)"
        with self._file.transaction() as connection:
            query = "SELECT count(*), coalesce(sum(bytes), 0) FROM files WHERE owner = ?"
            files, size = connection.execute(query, (owner,)).fetchone()
            if files >= limits.files or size + file.bytes > limits.files_bytes:
                return None
            connection.execute(statement, (*values, owner, content))
        return file

    def get(self, file_id: str, owner: str) -> FileObject | None:
        found = self._select("id = ? AND owner = ?", file_id, owner)
        return found[0] if found else None

    def content(self, file_id: str, owner: str) -> bytes | None:
        """The bytes of a file; None: the owner has no such file."""
        query = "SELECT content FROM files WHERE id = ? AND owner = ?"
        with self._file.transaction() as connection:
            row = connection.execute(query, (file_id, owner)).fetchone()
        return row and bytes(row[0])

    def search(self, owner: str, purpose: str | None, order: Order) -> list[FileObject]:
        """An owner's files, by the time of their upload."""
        condition = "owner = ? AND (? IS NULL OR purpose = ?) ORDER BY number"
        return self._select(f"{condition} {order}", owner, purpose, purpose)

    def delete(self, file_id: str, owner: str) -> bool:
        """Delete a file; False: the owner has no such file."""
        statement = "DELETE FROM files WHERE id = ? AND owner = ?"
        with self._file.transaction() as connection:
            return connection.execute(statement, (file_id, owner)).rowcount > 0

    def _select(self, condition: str, *values: Any) -> list[FileObject]:
        query = f"SELECT {_COLUMNS} FROM files WHERE {condition}"
        with self._file.transaction() as connection:
            rows = connection.execute(query, values).fetchall()
        return [FileObject(**dict(zip(_COLUMNS.split(", "), row, strict=True))) for row in rows]


def files_router(files: FileStore, bodies: BodyReader, limits: RequestLimits) -> APIRouter:
    """The routes of the caller's files."""
    router = APIRouter(prefix="/v1/files")

    @router.post("", openapi_extra=describe_body(FileUpload, "multipart/form-data"))
    async def upload_file(request: Request) -> FileObject:
        """Store an image."""
        fields, uploads = await bodies.read_form(request, 1, _MAX_FIELDS)
        form = validate(fields | {each.field: each.content for each in uploads}, FileUpload)
        await check_input_image(form.file, "file", limits)
        name = uploads[0].filename[:_MAX_NAME_LENGTH] or "image"
        owner = owner_of(request)
        file = await asyncio.to_thread(files.add, owner, name, form.purpose, form.file, limits)
        if file:
            return file
        most = f"{limits.files} files of {limits.files_bytes} bytes in all"
        message = f"file: at most {most} are stored; delete some"
        raise bad_request(message, "file", "too_many_files")

    @router.get("")
    def list_files(
        request: Request,
        after: Annotated[str | None, Query(max_length=100)] = None,
        limit: Annotated[int, Query(ge=1, le=_PAGE)] = _PAGE,
        order: Order = "desc",
        purpose: Annotated[str | None, Query(max_length=100)] = None,
    ) -> Page:
        """A page of files, by the time of their upload."""
        found = files.search(owner_of(request), purpose, order)
        return page_of([file.model_dump() for file in found], after, limit, "file")

    @router.get("/{file_id}")
    def retrieve_file(request: Request, file_id: str) -> FileObject:
        """A file without its bytes."""
        file = files.get(file_id, owner_of(request))
        if file is None:
            raise _no_file(file_id)
        return file

    @router.delete("/{file_id}")
    def delete_file(request: Request, file_id: str) -> Deleted:
        """Delete a file and its bytes; responses that began with it keep their own copy."""
        if not files.delete(file_id, owner_of(request)):
            raise _no_file(file_id)
        return Deleted(id=file_id, object="file")

    @router.get("/{file_id}/content", response_class=Response, responses=IMAGE_FILE)
    def file_content(request: Request, file_id: str) -> Response:
        """The bytes of a file."""
        content = files.content(file_id, owner_of(request))
        if content is None:
            raise _no_file(file_id)
        headers = SANDBOX_HEADERS | {"Cache-Control": "private"}
        return Response(content, media_type=EncodedImage(content).mime, headers=headers)

    return router


def _no_file(file_id: str) -> APIError:
    return not_found(f"there is no file {file_id}", "file_id")
