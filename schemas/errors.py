"""Errors for users: one line that says what is wrong and what to do about it."""

from pydantic import ValidationError


class FoundryError(Exception):
    """A problem that the user can fix; the CLI prints its message without a traceback."""


class DocumentError(FoundryError):
    """An invalid YAML document (pack, profile); the message names file, line and key."""


class SchemaMismatchError(FoundryError):
    """Stored or given rows whose schema version or columns differ from the table's."""


class BadImageError(FoundryError):
    """Bytes that do not decode to an image, or do not match their sha256."""


class StorageError(FoundryError):
    """Lake, image store or journal cannot be read or written; stored data is unchanged."""


def first_problem(error: ValidationError, *parents: str, root: str = "document") -> str:
    """`key: message` of the first problem that pydantic found in the section at `parents`; `root`
    stands for the key of the whole document."""
    problem = error.errors(include_url=False)[0]
    key = ".".join(map(str, (*parents, *problem["loc"])))
    return f"{key or root}: {problem['msg']}"
